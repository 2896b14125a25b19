package autograd_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
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
	aux := func(f func(c auxCase) nn.T) func(m *moeModel, _ *ranks) {
		return func(m *moeModel, _ *ranks) { m.aux = f }
	}
	over := func(g *dist.Group, params ...*tensor.Param) func(p *tensor.Param) *dist.Group {
		return func(p *tensor.Param) *dist.Group {
			if slices.Contains(params, p) {
				return g
			}
			return nil
		}
	}
	c := moeJob(2, 0, new(atomic.Int64))
	c.Mesh = "dp=2,ep=2"
	requireRefused(t, c, map[string]wrong[*moeModel]{
		"experts summed over all ranks": {func(_ *moeModel, g *ranks) { g.over = nil }, "has of up the part"},
		"experts not summed over dp": {func(m *moeModel, g *ranks) { g.over = over(g.Group(), m.Up, m.Down) },
			"axis dp: parameter up[4 6 7] is the same on all ranks"},
		"dense parameters summed over dp only": {func(_ *moeModel, g *ranks) { g.sum = g.Group("dp") },
			"axis ep: parameter in.weight[7 7] is the same on all ranks"},
		"router summed over dp only": {func(m *moeModel, g *ranks) { g.over = over(g.Group("dp"), m.Up, m.Down, m.Router.W) },
			"axis ep: parameter router.weight[8 7] is the same on all ranks"},
		"no combine": {func(m *moeModel, _ *ranks) { m.back = func(f *autograd.AllToAll) tensor.Function { return &stay{f} } },
			"axis ep: input 1 is this rank's rows, input 0 this rank's part"},
		"dispatch over dp": {func(m *moeModel, g *ranks) { m.ep = g.Group("dp") },
			"axis ep: input 0 is this rank's rows, parameter up[4 6 7] this rank's part of the features"},
		"auxiliary loss: this rank's mean": {aux(func(c auxCase) nn.T { return c.probs.Mul(fractions(c.probs.Tape(), c.total)).Mean() }),
			"GlobalMean"},
		"auxiliary loss: this rank's fractions, computed on the device": {aux(func(c auxCase) nn.T {
			return c.probs.Sum(0).Mul(c.probs.Mean(0)).Sum()
		}), "mul float64[8], float64[8]: axis dp: input 0 is a partial sum"},
		"auxiliary loss: the square of a partial sum": {aux(func(c auxCase) nn.T { return c.probs.Sum(0).Square().Sum() }), "square float64[8]"},
	})
	c.Mesh = "fsdp=2,ep=2"
	requireRefused(t, c, map[string]wrong[*moeModel]{
		"experts cut over all ranks": {func(m *moeModel, g *ranks) { g.over = over(g.Group("fsdp", "ep"), m.Up) }, "fsdp: ranks differ: "},
		"experts cut over no ranks": {func(m *moeModel, g *ranks) { g.over = over(g.Group(), m.Up) },
			"axis fsdp: parameter up[4 6 7] is the same on all ranks"},
		"dense parameters cut over fsdp only": {func(_ *moeModel, g *ranks) { g.sum = g.Group("fsdp") },
			"axis ep: parameter in.weight[7 7] is the same on all ranks"},
	})
}

// Types do not notice these mistakes, because the numbers go through the host: the results differ from one rank's, unless a number becomes
// an input again.
func TestWrongCountsDifferFromOneRank(t *testing.T) {
	c := moeJob(2, 0, new(atomic.Int64))
	want := c.run(t)
	c.Mesh = "dp=2,ep=2"
	with := func(aux func(c auxCase) nn.T) {
		c.change = func(n model, _ *ranks) { n.(*moeModel).aux = aux }
	}
	with(func(c auxCase) nn.T { // this rank's sum, divided by its own count
		f := fractions(c.probs.Tape(), c.total)
		return c.probs.Mul(f).Sum().Scale(moeExperts / float64(c.probs.Dim(0))).Add(tensor.GlobalMean(c.logits.LogSumExp().Square()))
	})
	requireDiffers(t, want, c)
	with(func(c auxCase) nn.T { // this rank's fractions
		c.total = c.mine
		return balance(c)
	})
	_, err := c.whole().Try()
	require.ErrorContains(t, err, "inputs without Rows")
}
