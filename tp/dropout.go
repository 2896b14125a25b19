package tp

import (
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Masks of dropout are a function of an element's place in the whole model, so that a divided one drops what one rank would. These
// methods say where a rank's elements are.

// Attention is Heads for an nn.Attention, whose queries, keys and values are one matrix, Row for its output, and says where the heads of
// its dropout are. Its input is [batch, time, features], so that there is no Config.Sequence: for that, give attention layers of its own.
func (p *Parallel) Attention(before nn.Layer, a *nn.Attention) nn.Layer {
	heads, ranks := a.QKV.W.Global()[0]/(3*a.HeadDim), p.Group.Size()
	switch {
	case p.Sequence:
		fail("Attention", "%s: nn.Attention has no flat tokens, which Config.Sequence has", a.QKV.W.Name())
	case heads%ranks != 0:
		fail("Attention", "%d heads of %s do not divide over %d ranks: the number of ranks must divide %d", heads, a.QKV.W.Name(), ranks, heads)
	}
	p.columns(a.QKV, 0)
	p.Row(a.Out)
	if a.Drop != nil {
		p.Inside(a.Drop, heads)
	}
	return p.enter(before)
}

// Inside is for dropout between Columns and Row, of so many features over all ranks.
func (p *Parallel) Inside(d *nn.Dropout, features int) {
	first, _ := layout.Share(features, p.Group.Rank(), p.Group.Size())
	d.At = func(nn.T) tensor.Region { return tensor.Region{Cols: tensor.Span{First: first, Total: features}} }
}

// Outside is for dropout of what is not divided, or divided into tokens with Config.Sequence.
func (p *Parallel) Outside(d *nn.Dropout) {
	if !p.Sequence {
		return
	}
	d.At = func(x nn.T) tensor.Region {
		tokens := x.Tape().Tokens()
		first, _ := layout.Share(tokens, p.Group.Rank(), p.Group.Size())
		return tensor.Region{Rows: tensor.Span{First: first, Total: tokens}}
	}
}
