package tp

import (
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/tensor"
)

// The functions of autograd for tokens [tokens, features] whose number is that of the step. split begins each Forward, and says how
// many there are; a recomputation in Backward has as many.

type split struct {
	autograd.Split
	p *Parallel
}

// Forward returns this rank's tokens.
func (f *split) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.p.tokens = in[0].Dim(0)
	f.Counts = f.p.shares(f.Counts)
	return f.Split.Forward(c, in)
}

type gather struct {
	autograd.AllGather
	p *Parallel
}

// Forward returns all tokens.
func (f *gather) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.Counts = f.p.shares(f.Counts)
	return f.AllGather.Forward(c, in)
}

type scatter struct {
	autograd.ReduceScatter
	p *Parallel
}

// Forward returns this rank's tokens of the sum.
func (f *scatter) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.Counts = f.p.shares(f.Counts)
	return f.ReduceScatter.Forward(c, in)
}

// shares writes the tokens of each rank to counts, which it makes the first time.
func (p *Parallel) shares(counts []int) []int {
	n := p.Group.Size()
	if counts == nil {
		counts = make([]int, n)
	}
	for i := range counts {
		counts[i] = (p.tokens + n - 1 - i) / n // the first ones have one more where it does not divide
	}
	return counts
}
