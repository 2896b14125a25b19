package tensortest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

var host = tensor.FromSlice([]uint8{0}, 1).Device()

// Of returns a tensor of type d in host memory with the given elements, converted as by Cast.
func Of(d tensor.DType, v []float64, dims ...int) tensor.Tensor {
	x := tensor.New(host, d, dims...)
	if x.Len() > 0 {
		e := tensor.NewExec(host)
		e.Args(tensor.OpCast, tensor.Float64).Out(x).In(tensor.FromSlice(v, dims...))
		e.Launch()
	}
	return x
}

// On returns a copy of x, which is contiguous, on dev, with the same Rows.
func On(dev tensor.Device, x tensor.Tensor) tensor.Tensor {
	y := tensor.New(dev, x.DType(), x.Shape().Dims...)
	tensor.Copy(y, x)
	return y.WithRows(x.Rows())
}

// uniform returns a number in [0,1).
func uniform(key, i uint64) float64 { return float64(tensor.RandomBits(key, i)>>11) * 0x1p-53 }

// RequireClose compares numbers: want and got differ by tol·(1+|want|) at most; NaN and infinities must agree.
func RequireClose(t testing.TB, want, got []float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i, w := range want {
		g := got[i]
		if w == g || w != w && g != g || math.Abs(w-g) <= tol*(1+math.Abs(w)) && !math.IsInf(w, 0) {
			continue
		}
		require.Failf(t, "value", "%s: element %d is %v, want %v", msg, i, g, w)
	}
}

// RequireGrads is RequireClose for the results of GradRun.Grads.
func RequireGrads(t testing.TB, want, got [][]float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i := range want {
		require.Equal(t, want[i] == nil, got[i] == nil, "%s: input %d", msg, i)
		RequireClose(t, want[i], got[i], tol, fmt.Sprintf("%s: gradient of input %d", msg, i))
	}
}
