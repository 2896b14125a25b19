package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
)

// What is the same in the tests inside of the package.
var hostDevice, skipInDebug, random = HostDevice, SkipInDebug, Random

var floatTypes = []DType{Float32, Float64, BFloat16, Float16}

// requireClose is tensortest.RequireClose, which the internal tests cannot import.
func requireClose(t *testing.T, want, got []float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i, w := range want {
		g := got[i]
		if w == g || w != w && g != g || math.Abs(w-g) <= tol*(1+math.Abs(w)) {
			continue
		}
		require.Failf(t, "value", "%s: element %d is %v, want %v", msg, i, g, w)
	}
}

func requireGrads(t *testing.T, want, got [][]float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i := range want {
		requireClose(t, want[i], got[i], tol, fmt.Sprintf("%s: input %d", msg, i))
	}
}

// identity returns its arguments.
type identity struct{}

func (identity) Name() string                       { return "identity" }
func (identity) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (identity) Backward(_ *Ctx, g Tensor, grads []Tensor) {
	grads[0] = g
}
