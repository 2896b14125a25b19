package cuda_test

import (
	"testing"

	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkOp measures the host's cost of an operation, from the tape to the driver. Most of it is the emulator's driver.
func BenchmarkOp(b *testing.B) {
	dev := device(b)
	tape := tensor.NewTape(dev, tensor.NoGrad())
	x := tensor.New(dev, tensor.Float32, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%100 == 0 {
			tape.Reset()
		}
		tape.Input(x).Affine(2, 1)
	}
}
