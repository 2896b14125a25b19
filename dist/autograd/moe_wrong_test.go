package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/tensor"
)

// stay does not communicate: it returns as many rows as the exchange would.
type stay struct{ f *autograd.AllToAll }

func (*stay) Name() string { return "stay" }

func (s *stay) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	n := 0
	for _, k := range s.f.Recv {
		n += k
	}
	return c.New(in[0].DType(), n, in[0].Dim(1))
}

func (s *stay) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	n := 0
	for _, k := range s.f.Send {
		n += k
	}
	grads[0] = c.New(g.DType(), n, g.Dim(1))
}

// Each program sums a gradient over the wrong ranks, or sends tokens to ranks without their experts. It is refused before a step is
// trained.
func TestWrongExpertsAreRefused(t *testing.T) {
	aux := func(f func(c auxCase) tensor.Tensor) moeTraining {
		return moeTraining{change: func(m *moeModel, _ moeMesh) { m.aux = f }}
	}
	expert := func(m *moeModel, p *tensor.Param) bool { return p == m.Up || p == m.Down }
	for name, c := range map[string]struct {
		moeTraining
		want string
	}{
		"experts summed over all ranks": {moeTraining{over: func(*moeModel, moeMesh, *tensor.Param) *dist.Group { return nil }},
			"has of up the part"},
		"experts not summed over edp": {moeTraining{over: func(m *moeModel, g moeMesh, p *tensor.Param) *dist.Group {
			if expert(m, p) {
				return g.none
			}
			return nil
		}}, "axis edp: parameter up[4 6 7] is the same on all ranks"},
		"dense parameters summed over edp only": {moeTraining{dense: func(g moeMesh) *dist.Group { return g.edp }},
			"axis ep: parameter in.weight[7 7] is the same on all ranks"},
		"router summed over edp only": {moeTraining{over: func(m *moeModel, g moeMesh, p *tensor.Param) *dist.Group {
			if expert(m, p) || p == m.Router.W {
				return g.edp
			}
			return nil
		}}, "axis ep: parameter router.weight[8 7] is the same on all ranks"},
		"experts cut over all ranks by fsdp": {moeTraining{fsdp: true, over: func(_ *moeModel, g moeMesh, _ *tensor.Param) *dist.Group { return g.all }},
			"fsdp: ranks differ: "},
		"experts cut over no ranks by fsdp": {moeTraining{fsdp: true, over: func(_ *moeModel, g moeMesh, _ *tensor.Param) *dist.Group { return g.none }},
			"axis edp: parameter up[4 6 7] is the same on all ranks"},
		"dense parameters cut over edp only by fsdp": {moeTraining{fsdp: true, dense: func(g moeMesh) *dist.Group { return g.edp }},
			"axis ep: parameter in.weight[7 7] is the same on all ranks"},
		"no combine": {moeTraining{change: func(m *moeModel, _ moeMesh) {
			m.back = func(f *autograd.AllToAll) tensor.Function { return &stay{f} }
		}}, "axis ep: input 1 is this rank's rows, input 0 this rank's part"},
		"dispatch over edp": {moeTraining{change: func(m *moeModel, g moeMesh) { m.ep = g.edp }},
			"axis ep: input 0 is this rank's rows, parameter up[4 6 7] this rank's part of the features"},
		"auxiliary loss: this rank's mean": {aux(func(c auxCase) tensor.Tensor {
			return c.probs.Mul(fractions(c.probs.Tape(), c.total)).Mean()
		}), "GlobalMean"},
		"auxiliary loss: this rank's fractions, computed on the device": {aux(func(c auxCase) tensor.Tensor {
			return c.probs.Sum(0).Mul(c.probs.Mean(0)).Sum()
		}), "mul float64[8], float64[8]: axis edp: input 0 is a partial sum"},
		"auxiliary loss: the square of a partial sum": {aux(func(c auxCase) tensor.Tensor {
			return c.probs.Sum(0).Square().Sum()
		}), "square float64[8]"},
	} {
		t.Run(name, func(t *testing.T) {
			c.top, c.edp, c.ep = 2, 2, 2
			_, err := c.run()
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Types do not notice these mistakes, because the numbers go through the host: the results differ from one rank's.
func TestWrongCountsDifferFromOneRank(t *testing.T) {
	one, err := moeTraining{top: 2, edp: 1, ep: 1}.run()
	require.NoError(t, err)
	for name, aux := range map[string]func(c auxCase) tensor.Tensor{
		"this rank's sum, divided by its own count": func(c auxCase) tensor.Tensor {
			f := fractions(c.probs.Tape(), c.total)
			return c.probs.Mul(f).Sum().Scale(moeExperts / float64(c.probs.Dim(0))).Add(tensor.GlobalMean(c.logits.LogSumExp().Square()))
		},
		"this rank's fractions": func(c auxCase) tensor.Tensor {
			c.total = c.mine
			return balance(c)
		},
	} {
		got, err := moeTraining{top: 2, edp: 2, ep: 2, change: func(m *moeModel, _ moeMesh) { m.aux = aux }}.run()
		require.NoError(t, err, name)
		worst, where := got.differs(one)
		require.Greater(t, worst, 1e-4, "%s: %s", name, where)
	}
}
