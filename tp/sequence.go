package tp

import (
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// The functions of autograd for tokens [tokens, features]. Each step may have another number of tokens: split, the first function of
// Forward, notes it for the others. A recomputation in Backward has as many.

// sequence returns the functions before columns and after rows.
func (p *Parallel) sequence() (in, out tensor.Function) {
	g, s := &gather{p: p}, &scatter{p: p}
	g.Group, s.Group, g.Chunks, s.Chunks = p.Group, p.Group, p.Chunks, p.Chunks
	return g, s
}

type split struct {
	autograd.Split
	p *Parallel
}

// Forward returns this rank's tokens.
func (f *split) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.p.tokens = in[0].Dim(0)
	f.Counts = f.p.shares()
	return f.Split.Forward(c, in)
}

type gather struct {
	autograd.TokenGather
	p *Parallel
}

// Forward returns all tokens.
func (f *gather) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.Counts = f.p.shares()
	return f.TokenGather.Forward(c, in)
}

type scatter struct {
	autograd.TokenScatter
	p *Parallel
}

// Forward returns this rank's tokens of the sum.
func (f *scatter) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.Counts = f.p.shares()
	return f.TokenScatter.Forward(c, in)
}

// shares returns how many of the step's tokens each rank has, in memory that the next step overwrites.
func (p *Parallel) shares() []int { return layout.Shares(p.counts, p.tokens) }
