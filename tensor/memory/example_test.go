package memory_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
)

func ExampleCounter() {
	dev := cpu.New(1)
	defer dev.Close()
	w := tensor.NewParam(tensor.Constant(0.5), 256, 256)
	w.Make(dev, tensor.Float32, 1)
	x := tensor.New(dev, tensor.Float32, 32, 256)
	tape := tensor.NewTape(dev)
	defer tape.Close()
	tape.Backward(tensor.Linear(tape.Input(x), tape.Use(w), tensor.Tensor{}).Sum())
	tape.Reset()
	fmt.Println("gradients:", memory.Format(dev.Memory().Of(memory.Gradients).Live))
	fmt.Println("activations:", dev.Memory().Of(memory.Activations).Live, "B now")
	fmt.Println(w.HasGrad(), x.Len())
	// Output:
	// gradients: 256.00 KiB
	// activations: 0 B now
	// true 8192
}
