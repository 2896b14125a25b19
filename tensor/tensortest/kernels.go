package tensortest

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// kernels runs the kernels that the value cases do not use in all types.
func (s *Suite) kernels(t *testing.T) {
	dev := s.Device(t)
	within := func(msg string, tol float64, f func(dev tensor.Device) tensor.Tensor) {
		var want []float64
		if s.Needs(t, dev, func() { want = tensor.Floats(f(s.spy)) }) {
			RequireClose(t, want, tensor.Floats(f(dev)), tol, msg)
		}
	}
	run := func(msg string, d tensor.DType, f func(dev tensor.Device) tensor.Tensor) {
		within(msg, s.Tolerance(d), f)
	}
	for from := range tensor.DType(tensor.NumDTypes) {
		for to := range tensor.DType(tensor.NumDTypes) {
			run(fmt.Sprint(from, " to ", to), to, func(dev tensor.Device) tensor.Tensor {
				return tensor.NewTape(dev).Input(Of(from, castValues, len(castValues))).Cast(to)
			})
		}
	}
	for _, d := range []tensor.DType{tensor.Int32, tensor.Int64, tensor.Uint8} {
		x, y := Of(d, []float64{7, 250, 3, 9, 0, 1}, 2, 3), Of(d, []float64{2, 7, 0, 4, 5, 1}, 2, 3)
		run(fmt.Sprint("div ", d), d, func(dev tensor.Device) tensor.Tensor { return tensor.NewTape(dev).Input(x).Div(y) })
		run(fmt.Sprint("addto ", d), d, func(dev tensor.Device) tensor.Tensor { return addColumns(dev, x, y) })
	}
	c, x := Of(tensor.Bool, []float64{1, 0, 1}, 3), Of(tensor.Bool, []float64{0, 0, 1}, 3)
	run("where bool", tensor.Bool, func(dev tensor.Device) tensor.Tensor { return ops.Where(tensor.NewTape(dev).Input(c), x, c) })
	x8 := Of(tensor.Float32, []float64{1, -0.3, 2.5, 100, 0.01, 7, 8, 9, -1, -2, -3, 4, 5, 6, 7, 8}, 1, 16)
	w8 := tensor.New(s.spy, tensor.Float32, 16, 16)
	tensor.NormalInit(0, 1).Fill(w8, 1, 0)
	// Tensor cores keep about 14 bits of a sum: see ops.Float8.
	within("8-bit floats", 1e-3, func(dev tensor.Device) tensor.Tensor {
		t := tensor.NewTape(dev)
		return ops.Float8Linear(t.Input(x8), t.Input(w8), ops.PerRow)
	})
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		run(fmt.Sprint("sum of squares ", d), tensor.Float64, func(dev tensor.Device) tensor.Tensor { return sumSquares(dev, d) })
	}
}

// castValues are numbers at the limits of the types. No integer is among them that a type in between cannot hold.
var castValues = []float64{0, 1, -1, 0.5, -2.75, 3.999, 255, 256, 300, -300, 65504, 70000, 1e-8, 1e9, -1e9, 5e18, 1e30, math.NaN(),
	math.Inf(1), math.Inf(-1), 1.00390625, 1.01171875}

// addColumns adds the last two columns of y to the first two of x.
func addColumns(dev tensor.Device, x, y tensor.Tensor) tensor.Tensor {
	dst, src := On(dev, x), On(dev, y)
	e := tensor.NewExec(dev)
	a := e.Args(tensor.OpAddTo, x.DType()).Out(dst).In(src.Range(1, 6))
	a.NDim, a.Dim[0], a.Dim[1] = 2, 2, 2
	a.Stride[0], a.Stride[1] = [tensor.MaxNDim]int{3, 1}, [tensor.MaxNDim]int{3, 1}
	e.Launch()
	return dst
}

// sumSquares returns the sums of squares of the blocks of three tensors.
func sumSquares(dev tensor.Device, d tensor.DType) tensor.Tensor {
	out, e := tensor.New(dev, tensor.Float64, 5), tensor.NewExec(dev)
	a := e.Args(tensor.OpSumSquares, d).Out(out)
	var xs []tensor.Tensor
	for i, n := range []int{3, 2*tensor.SumSquaresBlock + 5, tensor.SumSquaresBlock} {
		x := tensor.New(dev, d, n)
		tensor.UniformInit(-1, 1).Fill(x, uint64(i), 0)
		a.List, a.ListLen, xs = append(a.List, x.Ptr()), append(a.ListLen, n), append(xs, x)
	}
	e.Launch()
	runtime.KeepAlive(xs)
	return out
}
