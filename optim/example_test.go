package optim_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Fit the line y = 3x − 1.
func Example() {
	dev := cpu.New(1)
	defer dev.Close()
	line := nn.NewLinear(1, 1)
	params := nn.Init(line, dev, tensor.Float64, 1)
	opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Schedule: schedule.Linear(1, 0, 200)})

	x := tensor.FromSlice([]float64{-1, 0, 1, 2}, 4, 1)
	y := tensor.FromSlice([]float64{-4, -1, 2, 5}, 4, 1)
	tape := tensor.NewTape(dev)
	for range 200 {
		tape.Backward(nn.MSE(line.Forward(tape.Input(x)), y))
		if err := opt.Step(); err != nil {
			fmt.Println(err)
			return
		}
		tape.Reset()
	}
	fmt.Printf("y = %.3fx + %.3f\n", line.W.Value.Item(), line.B.Value.Item())
	// Output: y = 3.000x + -1.000
}

// Of a matrix, Adafactor keeps a number for each row and each column.
func ExampleNewAdafactor() {
	dev := cpu.New(1)
	defer dev.Close()
	layer := nn.NewLinear(300, 200)
	opt := optim.NewAdafactor(nn.Init(layer, dev, tensor.Float32, 1), optim.AdafactorConfig{LR: 0.01})
	for _, x := range opt.State().Tensors {
		fmt.Println(x.Name, x.Tensor.Len())
	}
	// Output:
	// weight.row_var 200
	// weight.col_var 300
	// bias.variance 200
}
