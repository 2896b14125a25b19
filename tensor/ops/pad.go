package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// OpPad is the operation of Pad. Its steps are copies.
var OpPad tensor.Op

func init() {
	OpPad = registerAll(tensor.OpSpec{Name: "pad", Class: typing.Linear, Rows: tensor.RowsByCaller, VJP: padVJP}, kernels{})
}

// Pad returns x with zeros added to dimension dim: before in front of it, and after at its end.
func Pad(x tensor.Tensor, dim, before, after int) tensor.Tensor {
	t := OpPad.Tape(x)
	x = t.Packed(x)
	dim = axis(OpPad, x, dim)
	if before < 0 || after < 0 {
		OpPad.Fail([]tensor.Tensor{x}, "%d before, %d after", before, after)
	}
	d, rank := dimsOf(x)
	d[dim] += before + after
	out := t.New(x.DType(), d[:rank]...)
	t.Fill(out, 0)
	t.CopyInto(out, dim, before, x)
	if n := t.Record(OpPad, out, x); n != nil {
		n.I[0], n.I[1] = dim, before
	}
	t.PadTypes(OpPad, out, x, dim, before)
	return out
}

func padVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	dim, before := n.I[0], n.I[1]
	t.AddGrad(n, 0, n.Grad().Slice(dim, before, before+n.In(0).Dim(dim)))
}
