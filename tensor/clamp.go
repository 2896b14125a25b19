package tensor

import "math"

func init() {
	define(OpClamp, OpSpec{Name: "clamp", Saves: 1, VJP: clampVJP})
	define(OpClampGrad, OpSpec{Name: "clamp_grad", Const: true})
}

// Clamp returns x with elements below lo replaced by lo, and those above hi by hi, as torch.clamp; an infinite bound is no bound. NaN stays
// NaN. If lo > hi, all elements become hi. The gradient passes where lo ≤ x ≤ hi. For integers, bounds are rounded inwards, and to the
// range of the type.
func (x Tensor) Clamp(lo, hi float64) Tensor {
	t := tapeOf("clamp", x)
	in := t.contiguous(t.arg(x))
	if lo != lo || hi != hi {
		fail("clamp", these(in), "a bound is NaN: %v, %v", lo, hi)
	}
	t.NoteNumber("Clamp", in.tensor(), 0, lo)
	t.NoteNumber("Clamp", in.tensor(), 1, hi)
	out := t.newLike(in)
	if in.n > 0 {
		a := t.Args(OpClamp, in.dtype)
		a.out(out).in(in)
		a.F[0], a.F[1] = lo, hi
		if !in.dtype.IsFloat() {
			a.I[0], a.I[1] = in.dtype.saturate(math.Ceil(lo)), in.dtype.saturate(math.Floor(hi))
		}
		t.Launch()
	}
	if n := t.rec(OpClamp, out, in); n != nil {
		n.F[0], n.F[1] = lo, hi
	}
	return out.tensor()
}

func clampVJP(t *Tape, n *Node, _ uint8) {
	g, d := t.inPlace(n)
	if g.n > 0 {
		a := t.Args(OpClampGrad, g.dtype)
		a.out(d).in(g).in(n.in[0])
		a.F[0], a.F[1] = n.F[0], n.F[1]
		t.Launch()
	}
	t.addGrad(n.in[0], d)
}

// saturate returns v as an integer of type d, or the nearest integer that d can hold.
func (d DType) saturate(v float64) int {
	lo, hi := math.MinInt64, math.MaxInt64
	switch d {
	case Int32:
		lo, hi = math.MinInt32, math.MaxInt32
	case Uint8:
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
