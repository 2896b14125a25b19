package typing

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
)

// randomInputs returns up to four inputs of kinds on two axes.
func randomInputs(rnd *rand.Rand) (s Inputs, in []Operand) {
	for range 3 + rnd.IntN(2) {
		ty := layout.Types{}.With(1, layout.Kind(rnd.IntN(6))).With(2, layout.Kind(rnd.IntN(6)))
		x := Operand{Name: "input", Types: ty, Grad: rnd.IntN(2) == 0, Zeros: rnd.IntN(4) == 0}
		s.Add(x.Types, x.Grad)
		in = append(in, x)
	}
	return s, in
}

// A tape asks Fit only along Suspects, which is cheap: along other axes, all inputs fit. What is added to a partial sum is one, too, or 0.
func TestFit(t *testing.T) {
	rnd, misfits := rand.New(rand.NewPCG(1, 2)), map[Clash]int{}
	for range 20_000 {
		s, in := randomInputs(rnd)
		suspects, class := s.Suspects(), Class(rnd.IntN(int(Ratio)+1))
		ty, m := s.Fit(class, rnd.IntN(4) == 0, in)
		require.Zero(t, m.Axes&^suspects, "%v %v", class, in)
		misfits[m.Clash]++
		if m.Axes != 0 {
			require.NotEmpty(t, m.Error(in).Text)
			require.NotContains(t, m.Error(in).Text, "%!")
			continue
		}
		for axis := range 2 {
			partial := 0
			for _, x := range in {
				if x.Types.At(axis) == layout.Partial {
					partial++
				} else if class == Linear && ty.At(axis) == layout.Partial {
					require.True(t, x.Zeros, "added to a partial sum: %v", in)
				}
			}
			require.False(t, partial > 0 && class == Nonlinear, "%v", in)
			require.Equal(t, partial > 0, ty.At(axis) == layout.Partial, "%v %v", class, in)
		}
	}
	for c := ClashRows; c <= ClashProduct; c++ {
		assert.NotZero(t, misfits[c], "no inputs with clash %d", c)
	}
}

// Where nothing is refused, the output is a partial sum only if all that made it is.
func TestLoose(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		s, in := randomInputs(rnd)
		class := Class(rnd.IntN(int(Ratio) + 1))
		ty := s.Loose(class)
		for axis := range 2 {
			for _, x := range in {
				if ty.At(axis) == layout.Partial {
					require.Equal(t, layout.Partial, x.Types.At(axis), "%v", in)
					require.Equal(t, Linear, class)
				}
			}
		}
	}
}

// What is a rank's own among indices picks its rows.
func TestIndicesPickRows(t *testing.T) {
	for k := range layout.Cut + 1 {
		var s Inputs
		s.AddIndex(layout.Types{}.With(1, k), false)
		want := map[layout.Kind]layout.Kind{layout.Partial: layout.Varying, layout.Own: layout.Varying, layout.Invariant: layout.Replicated}
		if to, ok := want[k]; ok {
			assert.Equal(t, to, s.Types().At(0), "%v", k)
		} else {
			assert.Equal(t, k, s.Types().At(0))
		}
	}
}

func TestErrors(t *testing.T) {
	in := []Operand{{None: true}, {Name: "x", Types: layout.Types{}.With(2, layout.Varying)},
		{Name: "w", Types: layout.Types{}.With(2, layout.Invariant), Grad: true}}
	e := Misfit{2, ClashRows, layout.Invariant, layout.Varying}.Error(in)
	assert.EqualError(t, e, "axis 1: w is the same on all ranks and counts its gradient once, x is other rows on each: "+
		"the gradient lacks the sum over the ranks (x varying, no gradient; w invariant)")
	e.Name, e.See = "dp", "see ddp"
	assert.Contains(t, e.Error(), "axis dp: ")
	assert.Contains(t, e.Error(), "; see ddp")
	assert.EqualError(t, &Error{Have: layout.Varying, Want: layout.Partial}, "axis 0: the input is varying, must be partial")
	for _, k := range []layout.Kind{layout.Replicated, layout.Varying, layout.Cut, layout.Own} {
		assert.Contains(t, Misfit{1, ClashLoss, k, layout.Partial}.Error(nil).Text, "the loss ")
	}
}
