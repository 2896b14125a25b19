package cuda_test

import (
	"testing"

	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkOp is what an operation costs the host, from the tape to the driver: the emulator's driver is most of it.
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
