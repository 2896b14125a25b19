package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// againLinear is an AllGather of tokens and a column-parallel layer in one: of x [this rank's tokens, in], W and B. It keeps this rank's
// tokens for Backward, in place of all, and gathers again for the weight's gradient (Korthikanti et al. 2022).
type againLinear struct {
	group  *dist.Group
	counts []int // tokens of each rank
}

func (*againLinear) Name() string { return "again_linear" }

// gather issues an all-gather of x.
func (f *againLinear) gather(c *tensor.Ctx, x tensor.Tensor) (tensor.Tensor, dist.Work) {
	all := 0
	for _, n := range f.counts {
		all += n
	}
	y := c.New(x.DType(), all, x.Dim(1))
	return y, f.group.AllGatherV(y, x, f.counts)
}

func (f *againLinear) wait(w dist.Work) {
	if err := w.Wait(); err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
}

func (f *againLinear) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x, work := f.gather(c, in[0])
	f.wait(work)
	c.Save(in[0])
	c.Save(in[1])
	return tensor.Linear(x, in[1], in[2])
}

// Backward has the two collectives run while it computes: the tokens arrive behind the input's gradient, and that one is summed behind
// the weight's.
func (f *againLinear) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	part, w := c.Saved(0), c.Saved(1)
	x, work := f.gather(c, part)
	whole := tensor.MatMul(g, w, false, false)
	f.wait(work)
	grads[0] = c.New(part.DType(), part.Dim(0), part.Dim(1))
	c.Pending(0, f.group.ReduceScatterV(grads[0], whole, f.counts, dist.Sum).Pending())
	grads[1] = tensor.MatMul(g, x, true, false)
	grads[2] = g.Sum(0)
}

// Types wants parts of the tokens and of the features, and gives a part of the features.
func (f *againLinear) Types(in []tensor.Types, rows tensor.Axes) ([]tensor.Types, error) {
	axes := f.group.Axes()
	for _, w := range in[1:] {
		if _, err := w.Convert(axes, tensor.Cut, tensor.Cut); err != nil {
			return nil, err
		}
		if _, err := w.Convert(rows&^axes, tensor.Replicated, tensor.Replicated); err != nil {
			return nil, err
		}
	}
	out, err := in[0].Convert(axes, tensor.Varying, tensor.Cut)
	in[0] = out
	return in[:1], err
}

func newAgainGPT() model {
	m := newSequenceGPT().(*gpt)
	m.again = &againLinear{}
	return m
}

// Gathering again trains as on one rank.
func TestGatherAgainEqualsOneRank(t *testing.T) {
	requireOneRank(t, newAgainGPT, layout{dp: 2, cut: "tp=2"}, layout{dp: 1, fsdp: 2, cut: "tp=3"})
}

// Its Backward is the adjoint, for each of its inputs.
func TestGatherAgainAdjoint(t *testing.T) {
	for ranks := 1; ranks <= 3; ranks++ {
		disttest.Adjoint(t, ranks, func(r *dist.Rank) disttest.Communicating {
			return &againLinear{r.World, autograd.Shares(5, ranks)}
		}, disttest.Operand{Kind: tensor.Varying, Dims: func(rank, ranks int) []int { return []int{autograd.Shares(5, ranks)[rank], 4} }},
			disttest.Operand{Kind: tensor.Cut, Dims: func(rank, _ int) []int { return []int{rank + 1, 4} }},
			disttest.Operand{Kind: tensor.Cut, Dims: func(rank, _ int) []int { return []int{rank + 1} }})
	}
}

// What it keeps from Forward to Backward does not grow with the number of ranks.
func TestGatherAgainKeepsItsPart(t *testing.T) {
	const ranks, tokens, in, out = 3, 512, 64, 8
	run(t, ranks, func(r *dist.Rank) error {
		w, b, p := tensor.NewParam(tensor.Constant(1), out, in), tensor.NewParam(tensor.Constant(1), out), tensor.NewParam(tensor.Constant(1), tokens, in)
		for _, p := range []*tensor.Param{w, b, p} {
			p.Make(r.Device, tensor.Float64, 1)
		}
		live := func(f func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor) int {
			tape := tensor.NewTape(r.Device)
			defer tape.Close()
			x := tape.Use(p).Scale(2)
			before, _ := tape.Memory()
			f(tape, x)
			after, _ := tape.Memory()
			return after - before
		}
		again := live(func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor {
			return t.Apply(&untyped{&againLinear{r.World, []int{tokens, tokens, tokens}}}, x, t.Use(w), t.Use(b))
		})
		kept := live(func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor {
			return tensor.Linear(t.Apply(&untyped{&autograd.AllGather{Group: r.World}}, x), t.Use(w), t.Use(b))
		})
		output := ranks * tokens * out * 8
		require.Less(t, again, 2*output)
		require.GreaterOrEqual(t, kept, output+ranks*tokens*in*8)
		return nil
	})
}
