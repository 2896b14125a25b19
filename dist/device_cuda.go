package dist

import (
	driver "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// newCUDA makes the GPU of a rank. The ranks of a host take its GPUs in turn; more ranks than GPUs share them.
func newCUDA(local, _ int) (tensor.Device, error) {
	n, err := driver.CountGPUs()
	if err != nil {
		return nil, err
	}
	return cuda.NewDevice(local % n)
}
