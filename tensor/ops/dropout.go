package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// OpDropout is the operation of Dropout, and of its gradient.
var OpDropout tensor.Op

func init() {
	OpDropout = register(tensor.OpSpec{Name: "dropout", Class: typing.Linear, VJP: dropoutVJP},
		dropoutKernel[float32](), dropoutKernel[float64]())
}

// Dropout, on a tape in training, sets elements of x to zero with probability p and divides the others by 1−p. On other tapes it returns x.
// layer is the hash of the layer's name (tensor.HashName): two calls with one name in one Forward have the same mask. If the tape's Input
// has Rows, the leading dimension must be the batch, or the batch and further dimensions flattened. The mask then depends only on the place
// of an element in the global batch. A parameter has the same mask on all ranks. If a rank has only a part of x, use DropoutAt.
func Dropout(x tensor.Tensor, p float64, layer uint64) tensor.Tensor {
	return DropoutAt(x, p, layer, tensor.Region{})
}

// DropoutAt is Dropout of a part of an activation. Ranks with parts drop the same elements as one rank with the whole.
func DropoutAt(x tensor.Tensor, p float64, layer uint64, at tensor.Region) tensor.Tensor {
	t := OpDropout.Tape(x)
	if !drops(t, x, p) {
		return x
	}
	x = t.Packed(x)
	out, key, place := t.NewLike(x), t.RandomKey(layer), t.ElementPlace(OpDropout, x, at)
	dropout(t, out, x, p, key, place)
	if n := t.Record(OpDropout, out, x); n != nil {
		n.F[0], n.Key, n.I = p, key, place
	}
	return out
}

// DropoutChannels is Dropout of whole channels of x [rows, channels, ..], as torch.nn.functional.dropout2d: a channel is dropped as a whole
// or not at all.
func DropoutChannels(x tensor.Tensor, p float64, layer uint64) tensor.Tensor {
	t := OpDropout.Tape(x)
	if !drops(t, x, p) {
		return x
	}
	d, rank := dimsOf(x)
	if rank < 2 {
		OpDropout.Fail([]tensor.Tensor{x}, "wants rows of channels [rows, channels, ..]")
	}
	mask := t.New(x.DType(), d[:2]...)
	t.SamePlaces(mask, x)
	t.Fill(mask, 1)
	dropout(t, mask, mask, p, t.RandomKey(layer), t.RandomPlace(OpDropout, mask, mask.Len(), d[1], 1, tensor.Region{}))
	for i := 2; i < rank; i++ {
		d[i] = 1
	}
	return x.Mul(t.View(mask, d[:rank]...))
}

// drops checks p, and reports whether elements are dropped on the tape.
func drops(t *tensor.Tape, x tensor.Tensor, p float64) bool {
	if !(p >= 0 && p < 1) {
		OpDropout.Fail(nil, "probability %v is not in [0,1)", p)
	}
	if !t.Training() {
		return false
	}
	t.NoteNumber("Dropout", x, 0, p)
	return p != 0
}

func dropout(t *tensor.Tape, out, in tensor.Tensor, p float64, key uint64, place [8]int) {
	if out.Len() > 0 {
		a := t.Args(OpDropout, in.DType()).Out(out).In(in)
		a.F[0], a.Key, a.I = p, key, place
		t.Launch()
	}
}

func dropoutVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	g, d := t.GradInPlace(n)
	dropout(t, d, g, n.F[0], n.Key, n.I)
	t.AddGrad(n, 0, d)
}

func dropoutKernel[T float]() tensor.Kernel {
	return aligned(outLen, one, func(a *tensor.Args, lo, hi int) {
		rows := kernel.Rows{First: a.I[0], Stride: a.I[1], Elems: a.I[2], Cols: a.I[3], Line: a.I[4], Skip: a.I[5],
			Break: a.I[6], Jump: a.I[7]}
		kernel.Dropout(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), a.F[0], a.Key, rows, lo, hi)
	})
}
