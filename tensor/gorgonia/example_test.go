package gorgonia_test

import (
	"fmt"

	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/gorgonia"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// must is for examples.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A line is fitted to points, with the data and the weights in gorgonia's arrays.
func Example() {
	points := gt.New(gt.WithShape(4, 1), gt.WithBacking([]float64{0, 1, 2, 3}))
	values := gt.New(gt.WithShape(4, 1), gt.WithBacking([]float64{1, 3, 5, 7})) // 2x + 1
	weight := gt.New(gt.WithShape(1, 1), gt.Of(gt.Float64))
	bias := gt.New(gt.WithShape(1), gt.Of(gt.Float64))

	w, b := tensor.NewParam(tensor.Constant(0), 1, 1), tensor.NewParam(tensor.Constant(0), 1)
	w.SetValue(must(gorgonia.FromDense(weight)))
	b.SetValue(must(gorgonia.FromDense(bias)))
	x, y := must(gorgonia.FromDense(points)), must(gorgonia.FromDense(values))

	dev := cpu.New(1)
	defer dev.Close()
	tape := tensor.NewTape(dev)
	defer tape.Close()
	for range 400 {
		tape.Backward(ops.MSE(tensor.Linear(tape.Input(x), tape.Use(w), tape.Use(b)), tape.Input(y)))
		for _, p := range []*tensor.Param{w, b} { // package optim has better optimizers
			value, grad := tensor.Data[float64](p.Local), tensor.Data[float64](p.Grad)
			for i := range value {
				value[i] -= 0.1 * grad[i]
			}
			p.Consume()
		}
		tape.Reset()
	}
	fmt.Printf("%.3f x + %.3f\n", weight.Get(0), bias.Get(0))
	// Output: 2.000 x + 1.000
}

func ExampleFromDense() {
	d := gt.New(gt.WithShape(2, 3), gt.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	x := must(gorgonia.FromDense(d))
	tensor.Data[float32](x)[0] = 10
	fmt.Println(x)
	fmt.Println(d.Get(0))
	_ = d.T() // its memory stays as it was: no longer row-major
	_, err := gorgonia.FromDense(d)
	fmt.Println(err)
	// Output:
	// float32[2,3] [[10 2 3] [4 5 6]]
	// 10
	// gorgonia: FromDense of float32(3, 2): strides [1 3] are not row-major without gaps: call Materialize (or, after T, Transpose) first
}
