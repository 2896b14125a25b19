package tensor

import (
	"github.com/ringo-ml/ringo/layout"
)

// The words of package layout, which says how things are divided over ranks.
type (
	// Kind says how the values of a tensor on the ranks along one axis belong together.
	Kind = layout.Kind
	// Axes is a set of axes of the job.
	Axes = layout.Axes
	// Types holds a tensor's Kind on each of eight axes.
	Types = layout.Types
)

// The kinds of package layout.
const (
	Replicated = layout.Replicated
	Varying    = layout.Varying
	Partial    = layout.Partial
	Invariant  = layout.Invariant
	Own        = layout.Own
	Cut        = layout.Cut
)

// TypesFromBytes is the reverse of Types.Bytes.
func TypesFromBytes(b [3]byte) (Types, error) { return layout.TypesFromBytes(b) }

// Typed is a Function that communicates. Types checks the types of the inputs, and returns those of the output and of all other outputs.
// rows are the axes along which ranks hold other rows of the batch. To allocate nothing, it may write to in and return a part of it. An
// input without a gradient that is the same on all ranks is passed as Invariant; if Types returns an error, it is called again with
// Replicated. A Function without Types is taken to compute on each rank alone, and not to be linear.
type Typed interface {
	Types(in []Types, rows Axes) ([]Types, error)
}

// Types returns the types of x along the axes of the job.
func (x Tensor) Types() Types { return x.hdr().ty }

// Whole returns the axes along which all ranks have the same x, such as a loss behind autograd.Sum, or where ranks divide layers. In a sum
// over the ranks it counts on the first one (dist.Group.First). Outside of a tape there are none.
func (x Tensor) Whole() Axes {
	h := x.hdr()
	if h.tape == nil {
		return 0
	}
	return h.tape.rows.Over&^h.ty.Differ() | h.ty.On(Invariant)
}

// WithTypes sets the types of x, which belongs to no tape: another rank sent it. For a batch, use WithRows.
func (x Tensor) WithTypes(ty Types) Tensor {
	h := x.hdr()
	if h.tape != nil {
		fail("WithTypes", these(h), "a tensor of a tape has the types that it was computed with")
	}
	h.ty = ty
	return x
}

// AsPart returns x as this rank's part of a sum over the ranks along axes; x differs between them. It is for a loss of your own, whose
// divisor must be a global count, such as that of GlobalMean. What all ranks have alike along an axis, such as a penalty of the weights,
// stays so, and counts once: it is not divided by the number of ranks.
func AsPart(x Tensor, axes Axes) Tensor {
	t := tapeOf("AsPart", x)
	h := t.arg(x)
	out := t.alias(h)
	if n := t.rec(OpReshape, out, h); n != nil && h.ty.On(Own) != 0 && t.noting() {
		n.Key = t.callSite()
	}
	out.ty, out.at = h.ty.With(axes&(h.ty.On(Varying)|h.ty.On(Cut)|h.ty.On(Own)), Partial), place{}
	if axes&(h.ty.On(Varying)|h.ty.On(Own)) == 0 { // rows are where they were
		out.at = h.at.WithCut(0)
	}
	return out.tensor()
}

// Types returns the types of the parameter along the axes of the job.
func (p *Param) Types() Types { return p.ty }
