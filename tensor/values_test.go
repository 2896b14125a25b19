package tensor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// run computes a case on its own tape.
func run(c tensortest.ValueCase, dev tensor.Device, in []tensor.Tensor) tensor.Tensor {
	t := tensor.NewTape(dev)
	tensor.Poison(t)
	x := make([]tensor.Tensor, len(in))
	for i := range in {
		x[i] = t.Input(in[i])
	}
	return c.F(x)
}

func toArray(x tensor.Tensor) tensortest.Array {
	return tensortest.Array{Dims: x.Shape().Dims, V: tensor.Floats(x)}
}

func TestValues(t *testing.T) {
	dev := cpu.New(2)
	defer dev.Close()
	for _, c := range tensortest.ValueCases() {
		t.Run(c.Name, func(t *testing.T) {
			for _, dims := range c.Dims {
				for _, d := range c.DTypes() {
					checkValues(t, c, dev, d, dims)
				}
			}
		})
	}
}

func checkValues(t *testing.T, c tensortest.ValueCase, dev tensor.Device, d tensor.DType, dims [][]int) {
	t.Helper()
	var in []tensor.Tensor
	var naive []tensortest.Array
	for i, s := range dims {
		x := c.Operand(d, uint64(i), s)
		in, naive = append(in, x), append(naive, toArray(x))
	}
	got, msg := run(c, dev, in), fmt.Sprint(d, dims)
	want := c.Want(naive)
	require.Equal(t, len(want.Dims), got.NDim(), msg)
	for i, n := range want.Dims {
		require.Equal(t, n, got.Dim(i), msg)
	}
	if d.IsHalf() {
		checkHalf(t, c, dev, d, in, got)
	}
	if d == tensor.Uint8 && got.DType() == d { // integers wrap around
		for i, v := range want.V {
			want.V[i] = float64(uint8(v))
		}
	}
	tol := map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 3e-6, tensor.BFloat16: 2e-2, tensor.Float16: 3e-3}[d]
	tensortest.RequireClose(t, want.V, tensor.Floats(got), tol, msg)
}

// checkHalf compares with the float32 operation on the same values, rounded once: the bits, unless the operation rounds inner results.
func checkHalf(t *testing.T, c tensortest.ValueCase, dev tensor.Device, d tensor.DType, in []tensor.Tensor, got tensor.Tensor) {
	t.Helper()
	wide := make([]tensor.Tensor, len(in))
	for i, x := range in {
		wide[i] = tensortest.Of(tensor.Float32, tensor.Floats(x), x.Shape().Dims...)
	}
	want := run(c, dev, wide)
	if want.DType().IsFloat() && !c.Loss {
		want = want.Cast(d)
	}
	require.Equal(t, got.DType(), want.DType())
	tol := 0.0
	if c.Rounds && d == tensor.BFloat16 {
		tol = 1e-2
	}
	tensortest.RequireClose(t, tensor.Floats(want), tensor.Floats(got), tol, c.Name+": float32 rounded once")
}

// TestSpecialValues tries all pairs of NaN, infinities, zeros and very large and small numbers.
func TestSpecialValues(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	for _, c := range tensortest.ValueCases() {
		if !c.Special {
			continue
		}
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64} {
			var naive []tensortest.Array
			in := c.SpecialOperands(d)
			for _, x := range in {
				naive = append(naive, toArray(x))
			}
			want := c.Want(naive).V
			if d == tensor.Float32 {
				for i, v := range want {
					want[i] = float64(float32(v))
				}
			}
			tol := map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 1e-6}[d]
			tensortest.RequireClose(t, want, tensor.Floats(run(c, dev, in)), tol, fmt.Sprint(c.Name, d))
		}
	}
}
