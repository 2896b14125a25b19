package autograd

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Split gives each rank its part, along the first dimension, of a tensor that all ranks have. All ranks need the gradients of all parts,
// so Backward gathers the gradient.
type Split struct {
	Group  *dist.Group
	Counts []int // sizes of the parts, by rank; nil: all are equal. layout.Shares makes them.
}

// Name returns "autograd.Split".
func (*Split) Name() string { return "autograd.Split" }

// Forward returns this rank's part.
func (f *Split) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if f.Group.Size() == 1 {
		return in[0]
	}
	k := newCut(c, f, f.Group, 0, 0)
	k.split(in[0], f.Counts)
	first := 0
	for _, n := range k.counts()[:f.Group.Rank()] {
		first += n
	}
	return in[0].Slice(0, first, first+k.counts()[f.Group.Rank()])
}

// Backward issues an all-gather of the gradient.
func (f *Split) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() == 1 {
		grads[0] = g
		return
	}
	k := oldCut(c, f, f.Group, 0)
	d, work := k.gatherFlat(g)
	c.Pending(0, work.Pending())
	grads[0] = k.shaped(d)
}

// Types takes an invariant tensor and makes it vary over rows.
func (f *Split) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, f.Group.Axes(), tensor.Invariant, tensor.Varying)
}

// Gather joins the ranks' parts of a tensor along a dimension, if all ranks then compute the same. Then each rank has the whole gradient,
// and takes its part of it. If the ranks then compute different things, use AllGather.
type Gather struct {
	Group  *dist.Group
	Dim    int   // counted from the end if negative
	Counts []int // sizes of the parts, by rank; nil: see AllGather
}

// Name returns "autograd.Gather".
func (*Gather) Name() string { return "autograd.Gather" }

// Agree compares lines over the ranks: see dist.Group.Agree.
func (f *Gather) Agree(what string, lines []string) error { return f.Group.Agree(what, lines) }

// Forward returns the whole.
func (f *Gather) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if f.Group.Size() == 1 {
		return in[0]
	}
	k := newCut(c, f, f.Group, 0, f.Dim)
	k.join(in[0], f.Counts)
	return k.gather(in[0])
}

// Backward returns this rank's part of the gradient.
func (f *Gather) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() == 1 {
		grads[0] = g
		return
	}
	k, first := oldCut(c, f, f.Group, 0), 0
	for _, n := range k.counts()[:f.Group.Rank()] {
		first += n
	}
	grads[0] = g.Slice(k.dim, first, first+k.counts()[f.Group.Rank()])
}

// Types takes a tensor that varies over rows, or is cut, and makes it invariant.
func (f *Gather) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	axes := f.Group.Axes()
	if axes != 0 && in[0].On(tensor.Cut)&axes == axes {
		return convert(in, axes, tensor.Cut, tensor.Invariant)
	}
	return convert(in, axes, tensor.Varying, tensor.Invariant)
}
