package tensor

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var allKinds = []Kind{Replicated, Varying, Partial, Invariant, Own, Cut}

// A given gradient must have the dual types of the output: with another kind, a sum would be missing or done twice.
func TestBackwardFromChecksTypes(t *testing.T) {
	fits := map[Kind][]Kind{
		Replicated: {Partial},
		Varying:    {Varying},
		Partial:    {Replicated, Invariant},
		Invariant:  {Replicated, Invariant},
		Own:        {Own},
		Cut:        {Cut},
	}
	for _, out := range allKinds {
		for _, k := range allKinds {
			tape := typeTape(t)
			y := of(tape, out)
			g := New(hostDevice, Float64, 3, 2).WithTypes(Types{}.With(1, k))
			err := Try(func() { tape.BackwardFrom([]Tensor{y}, []Tensor{g}) })
			if slices.Contains(fits[out], k) {
				require.NoError(t, err, "%v for %v", k, out)
				continue
			}
			var e *TypeError
			require.True(t, errors.As(err, &e), "%v for %v: %v", k, out, err)
			assert.Equal(t, TypeError{Clash: ClashGrad, Have: k, Want: Types{}.With(1, out).Dual().At(0), Text: e.Text}, *e)
		}
	}
	tape := typeTape(t)
	y, z := of(tape, Varying), of(tape, Varying)
	g := New(hostDevice, Float64, 3, 2)
	err := Try(func() {
		tape.BackwardFrom([]Tensor{y, z}, []Tensor{g.WithTypes(y.Types()), New(hostDevice, Float64, 3, 2)})
	})
	require.ErrorContains(t, err,
		"BackwardFrom float64[3,2], float64[3,2]: axis 0: gradient 1 is replicated, but output 1 is varying: its gradient must be varying")
}

// The argument of Leaf keeps its types, and GradOf has those of its gradient, which fit the output on the tape before.
func TestGradOfHasTypes(t *testing.T) {
	for _, k := range []Kind{Varying, Partial, Invariant, Cut} {
		first, second := typeTape(t), typeTape(t)
		y := of(first, k)
		x := second.Leaf(second.Input(y))
		require.Equal(t, k, x.Types().At(0))
		second.BackwardFrom([]Tensor{x.Scale(2)}, []Tensor{New(hostDevice, Float64, 3, 2).WithTypes(y.Types().Dual())})
		g := second.GradOf(x)
		assert.Equal(t, y.Types().Dual(), g.Types(), "%v", k)
		require.NoError(t, Try(func() { first.BackwardFrom([]Tensor{y}, []Tensor{first.Input(g)}) }), "%v", k)
	}

	// The gradient of a replicated Leaf counts once on its tape, but the tape before needs parts of a sum.
	first, second := typeTape(t), typeTape(t)
	y := of(first, Replicated)
	x := second.Leaf(second.Input(y))
	require.Equal(t, Invariant, x.Types().At(0))
	second.Backward(x.Sum())
	err := Try(func() { first.BackwardFrom([]Tensor{y}, []Tensor{first.Input(second.GradOf(x))}) })
	require.ErrorContains(t, err, "gradient 0 is invariant, but output 0 is replicated: its gradient must be partial")
}
