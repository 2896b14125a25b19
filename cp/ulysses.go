package cp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Ulysses divides sequences over the ranks of Group, and attention alone by heads (Jacobs et al. 2023, "DeepSpeed Ulysses"). Each rank has
// all parameters and some positions of each sequence. Except for attention, this is like having other rows: so give these ranks to ddp or
// fsdp, too. Before attention, tensors [rows, positions, heads·HeadDim] are exchanged: a rank then has all positions for some of the heads.
// After attention they are exchanged back.
type Ulysses struct {
	Group   *dist.Group // such as mesh.Group("cp")
	HeadDim int

	parts
}

// Part returns this rank's positions of what a loader gives, x [rows, positions, ...]: of inputs, and of labels. Ranks compare the x of the
// first step, in host memory: it must be the same on all of them.
func (u *Ulysses) Part(x tensor.Tensor) tensor.Tensor {
	u.op = "cp.Ulysses.Part"
	return u.cut(x, u.runs, u.Group)
}

// runs returns this rank's: one, and an empty one.
func (u *Ulysses) runs(total int) runs {
	return runs{{0, total}, {total, total}}.part(u.Group.Rank(), u.Group.Size())
}

// ToHeads returns the function for queries, keys and values. Apply it before rotary positions and attention.
func (u *Ulysses) ToHeads() tensor.Function {
	return &exchange{u: u, swap: newSwap(u.Group, 2, 1)}
}

// ToPositions returns the function for the output of attention.
func (u *Ulysses) ToPositions() tensor.Function {
	return &exchange{u: u, swap: newSwap(u.Group, 1, 2), back: true}
}

type exchange struct {
	*swap
	u    *Ulysses
	back bool
}

// Forward exchanges positions and heads. One rank, and each rank that generates a text, has whole sequences: there is nothing to do then.
func (f *exchange) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x, g, n, total := in[0], f.Group, f.Group.Size(), c.Tape().Rows().Seq.Total
	if n == 1 || total == 0 && !c.Need(0) {
		return x
	}
	f.divide(total)
	mine, want, heads := x.Dim(1), f.counts[g.Rank()], x.Dim(2)/f.u.HeadDim
	if f.back {
		want = total
	}
	switch {
	case total == 0:
		fail("cp.Ulysses", "the step's input has whole sequences: give each rank its part (Ulysses.Part)")
	case mine != want || c.Tape().Rows().Seq != f.u.runs(total).seq(total):
		fail("cp.Ulysses", "%v: rank %d of %d has positions %+v of a step with %+v, not those of Ulysses.Part", x.Shape(), g.Rank(), n,
			f.u.runs(total).seq(total), c.Tape().Rows().Seq)
	case !f.back && (x.Dim(2)%f.u.HeadDim != 0 || heads%n != 0):
		fail("cp.Ulysses", "%d heads do not divide over %d ranks: the number of ranks must divide %[1]d; cp.Ring has no such limit", heads, n)
	}
	return f.AllToAll.Forward(c, in)
}

// swap is an exchange of positions (dimension 1) and heads (dimension 2).
type swap struct {
	autograd.AllToAll
	counts []int // positions of each rank
}

func newSwap(g *dist.Group, split, concat int) *swap {
	return &swap{autograd.AllToAll{Group: g, Split: split, Concat: concat}, make([]int, g.Size())}
}

// divide says how many positions the ranks have together.
func (s *swap) divide(total int) {
	s.counts = layout.Shares(s.counts, total)
	s.Send, s.Recv = nil, nil
	switch {
	case total%len(s.counts) == 0: // equal parts
	case s.Split == 1:
		s.Send = s.counts
	default:
		s.Recv = s.counts
	}
}
