package tp

import (
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// The functions of autograd for tokens [tokens, features]. Each microbatch may have another number of tokens: split, the first function of
// Forward, tells the tape for the others. A recomputation in Backward has as many, and so has the next stage of a pipeline.

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
	c.Tape().SetTokens(in[0].Dim(0))
	f.Counts = f.p.shares(c)
	return f.Split.Forward(c, in)
}

type gather struct {
	autograd.TokenGather
	p *Parallel
}

// Forward returns all tokens.
func (f *gather) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.Counts = f.p.shares(c)
	return f.TokenGather.Forward(c, in)
}

type scatter struct {
	autograd.TokenScatter
	p *Parallel
}

// Forward returns this rank's tokens of the sum.
func (f *scatter) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.Counts = f.p.shares(c)
	return f.TokenScatter.Forward(c, in)
}

// shares returns how many of the tape's tokens each rank has, in memory that the next call overwrites.
func (p *Parallel) shares(c *tensor.Ctx) []int { return layout.Shares(p.counts, c.Tape().Tokens()) }
