package dist

import (
	"fmt"
	"os"

	driver "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// newCUDA makes the GPU of a rank. The ranks of a host take its GPUs in turn; more ranks than GPUs share them.
func newCUDA(local, _ int) (tensor.Device, error) {
	d, err := driver.Load()
	if err != nil {
		return nil, err
	}
	n, err := d.Count()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("the CUDA driver shows no GPU (CUDA_VISIBLE_DEVICES=%q)", os.Getenv("CUDA_VISIBLE_DEVICES"))
	}
	return cuda.NewDevice(local % n)
}
