package tensor

import (
	"fmt"

	"github.com/ringo-ml/ringo/layout"
)

// Kind says how the values of a tensor on the ranks along one axis of the job belong together, and how the values of its gradient do.
type Kind uint8

// The kinds. All except Own and Cut come from Megatron-LM's conjugate functions f and g.
const (
	Replicated Kind = iota // the same on all; the gradient is a partial sum
	Varying                // each rank has other rows of the batch; so has the gradient
	Partial                // the sum over the ranks is the value; the gradient is the same on all
	Invariant              // the same on all, and so is the gradient
	Own                    // a mean over this rank's rows, or computed from one: not a part of a sum
	Cut                    // each rank has another part of the features or weights; so has the gradient
)

var kindNames = [8]string{"replicated", "varying", "partial", "invariant", "this rank's own", "cut", "?", "?"}

// String returns the name.
func (k Kind) String() string { return kindNames[k&7] }

// Axes is a set of axes of the job: bit i is axis i. Package dist numbers and names them.
type Axes = layout.Axes

// Types holds a tensor's Kind on each of eight axes: bits i of b0, b1 and b2 are the Kind on axis i. The zero Types is Replicated on all.
// On an axis that the job does not have, parameters are Invariant and inputs are the same on all ranks, which fits everything.
type Types struct{ b0, b1, b2 Axes }

// At returns the Kind on an axis, 0 to 7.
func (t Types) At(axis int) Kind {
	return Kind(t.b2>>axis&1<<2 | t.b1>>axis&1<<1 | t.b0>>axis&1)
}

// With returns t with kind k on axes.
func (t Types) With(axes Axes, k Kind) Types {
	t.b0, t.b1, t.b2 = t.b0&^axes, t.b1&^axes, t.b2&^axes
	if k&1 != 0 {
		t.b0 |= axes
	}
	if k&2 != 0 {
		t.b1 |= axes
	}
	if k&4 != 0 {
		t.b2 |= axes
	}
	return t
}

// On returns the axes on which t has kind k.
func (t Types) On(k Kind) Axes {
	b0, b1, b2 := t.b0, t.b1, t.b2
	if k&1 == 0 {
		b0 = ^b0
	}
	if k&2 == 0 {
		b1 = ^b1
	}
	if k&4 == 0 {
		b2 = ^b2
	}
	return b0 & b1 & b2
}

// differ returns the axes along which ranks have other values.
func (t Types) differ() Axes { return (t.b0 | t.b1 | t.b2) &^ t.On(Invariant) }

// Bytes returns t for sending to another rank: a pipeline stage sends tensors with their types.
func (t Types) Bytes() [3]byte { return [3]byte{byte(t.b0), byte(t.b1), byte(t.b2)} }

// TypesFromBytes is the reverse of Bytes.
func TypesFromBytes(b [3]byte) (Types, error) {
	t := Types{Axes(b[0]), Axes(b[1]), Axes(b[2])}
	if t.b2&t.b1 != 0 {
		return Types{}, fmt.Errorf("tensor: bytes %v are not types: kind %d on an axis", b, t.At((t.b2 & t.b1).First()))
	}
	return t, nil
}

// Dual returns the types of a tensor's gradient, given the tensor's types t: Replicated and Partial are exchanged, others stay.
func (t Types) Dual() Types {
	r, p := t.On(Replicated), t.On(Partial)
	return t.With(r, Partial).With(p, Replicated)
}

// Convert returns the types of the output of a Function whose input must have kind from on axes, and whose output has kind to there. If
// from is Partial, Cut is allowed, too: products of parts with parts are to be summed. The error is a *TypeError.
func (t Types) Convert(axes Axes, from, to Kind) (Types, error) {
	have := t.On(from)
	if from == Partial {
		have |= t.On(Cut)
	}
	if bad := axes &^ have; bad != 0 {
		return t, &TypeError{Axis: bad.First(), Clash: ClashInput, Have: t.At(bad.First()), Want: from}
	}
	return t.With(axes, to), nil
}

// Typed is a Function that communicates. Types checks the types of the inputs, and returns those of the output and of all other outputs.
// rows are the axes along which ranks hold other rows of the batch. To allocate nothing, it may write to in and return a part of it. An
// input without a gradient that is the same on all ranks is passed as Invariant; if Types returns an error, it is called again with
// Replicated. A Function without Types is taken to compute on each rank alone, and not to be linear.
type Typed interface {
	Types(in []Types, rows Axes) ([]Types, error)
}

// Types returns the types of x along the axes of the job. On a NoGrad tape there are no types.
func (x Tensor) Types() Types { return x.hdr().ty }

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
// divisor must be a global count, such as that of GlobalMean.
func AsPart(x Tensor, axes Axes) Tensor {
	t := tapeOf("AsPart", x)
	h := t.arg(x)
	out := t.alias(h)
	t.rec(OpReshape, out, h)
	out.ty = h.ty.With(axes&(h.ty.On(Varying)|h.ty.On(Cut)|h.ty.On(Own)), Partial)
	return out.tensor()
}

// Types returns the types of the parameter along the axes of the job.
func (p *Param) Types() Types {
	cut, summed := p.place.Divided(), p.place.Summed()
	return Types{b0: ^summed, b1: ^(summed | cut), b2: cut}
}
