package tp

import (
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Masks of dropout are a function of an element's place in the whole model, so that a divided one drops what one rank would. These
// methods say where a rank's elements are.

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
