package ops

import (
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// The operations of Clamp and of its gradient.
var OpClamp, OpClampGrad tensor.Op

func init() {
	OpClamp = registerAll(tensor.OpSpec{Name: "clamp", Saves: 1, VJP: clampVJP},
		numbers(clampKernel[float32](), clampKernel[float64](), clampKernel[int32](), clampKernel[int64](), clampKernel[uint8]()))
	OpClampGrad = register(tensor.OpSpec{Name: "clamp_grad", Const: true}, clampGradKernel[float32](), clampGradKernel[float64]())
}

// Clamp returns x with elements below lo replaced by lo, and those above hi by hi, as torch.clamp; an infinite bound is no bound. NaN stays
// NaN. If lo > hi, all elements become hi. The gradient passes where lo ≤ x ≤ hi. For integers, bounds are rounded inwards, and to the
// range of the type.
func Clamp(x tensor.Tensor, lo, hi float64) tensor.Tensor {
	t := OpClamp.Tape(x)
	x = t.Packed(x)
	if lo != lo || hi != hi {
		OpClamp.Fail([]tensor.Tensor{x}, "a bound is NaN: %v, %v", lo, hi)
	}
	t.NoteNumber("Clamp", x, 0, lo)
	t.NoteNumber("Clamp", x, 1, hi)
	out := t.NewLike(x)
	if d := x.DType(); x.Len() > 0 {
		a := t.Args(OpClamp, d).Out(out).In(x)
		a.F[0], a.F[1] = lo, hi
		if !d.IsFloat() {
			a.I[0], a.I[1] = saturate(d, math.Ceil(lo)), saturate(d, math.Floor(hi))
		}
		t.Launch()
	}
	if n := t.Record(OpClamp, out, x); n != nil {
		n.F[0], n.F[1] = lo, hi
	}
	return out
}

func clampVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	g, d := t.GradInPlace(n)
	if g.Len() > 0 {
		a := t.Args(OpClampGrad, g.DType()).Out(d).In(g).In(n.In(0))
		a.F[0], a.F[1] = n.F[0], n.F[1]
		t.Launch()
	}
	t.AddGrad(n, 0, d)
}

// saturate returns v as an integer of type d, or the nearest integer that d can hold.
func saturate(d tensor.DType, v float64) int {
	lo, hi := math.MinInt64, math.MaxInt64
	switch d {
	case tensor.Int32:
		lo, hi = math.MinInt32, math.MaxInt32
	case tensor.Uint8:
		lo, hi = 0, math.MaxUint8
	}
	switch {
	case v >= float64(hi):
		return hi
	case v <= float64(lo):
		return lo
	}
	return int(v)
}

func clampKernel[T number]() tensor.Kernel {
	return aligned(outLen, one, func(a *tensor.Args, from, to int) {
		var lo, hi [1]T
		if a.DType.IsFloat() {
			lo[0], hi[0] = T(a.F[0]), T(a.F[1])
		} else {
			lo[0], hi[0] = T(a.I[0]), T(a.I[1])
		}
		y := tensor.Operand[T](a, 0)[from:to]
		kernel.Max(y, tensor.Operand[T](a, 1)[from:to], lo[:])
		kernel.Min(y, y, hi[:])
	})
}

func clampGradKernel[T float]() tensor.Kernel {
	return aligned(outLen, one, func(a *tensor.Args, from, to int) {
		lo, hi, y := T(a.F[0]), T(a.F[1]), operands[T](a)
		d, g, x := y[0][from:to], y[1][from:to], y[2][from:to]
		for i, v := range x {
			if v >= lo && v <= hi {
				d[i] = g[i]
			} else {
				d[i] = 0
			}
		}
	})
}
