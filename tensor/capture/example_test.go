package capture_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// A step that is captured is one launch on a GPU, and the same on the CPU.
func ExampleNew() {
	dev := cpu.New(1)
	defer dev.Close()
	tape, norm := tensor.NewTape(dev, tensor.NoGrad()), tensor.New(dev, tensor.Float32)
	step := capture.New(dev, func(in ...tensor.Tensor) error {
		tensor.Copy(norm, tape.Input(in[0]).Square().Sum().Sqrt())
		tape.Reset()
		return nil
	})
	defer step.Close()
	for i := range 5 {
		if err := step.Run(tensor.FromSlice([]float32{3, float32(i)}, 2)); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(norm.Item())
	// Output: 5
}
