package tensor

import "math"

func init() {
	define(OpArange, OpSpec{Name: "arange", Const: true})
}

// Arange returns start, start+step, start+2·step and so on, up to but without end, in type d, as torch.arange. Elements are computed in
// float64. If d is an integer type, they must be integers that d can hold, of magnitude 2^53 at most.
func (t *Tape) Arange(d DType, start, end, step float64) Tensor {
	n := math.Ceil((end - start) / step)
	if !(n >= 0) || n > maxElems { // also NaN
		fail("arange", nil, "from %v to %v in steps of %v", start, end, step)
	}
	if last := start + float64(max(n-1, 0)*step); !d.IsFloat() && n > 0 {
		for _, v := range []float64{start, step, last} {
			if v != math.Trunc(v) || math.Abs(v) > 1<<53 || v != step && d.saturate(v) != int(v) {
				fail("arange", nil, "%v from %v to %v in steps of %v: %v does not fit the type", d, start, end, step, v)
			}
		}
	}
	out := t.newTensor(d, int(n))
	if out.n > 0 {
		a := t.Args(OpArange, d)
		a.out(out)
		a.F[0], a.F[1] = start, step
		t.Launch()
	}
	t.NoteNumber("Arange", out.tensor(), 0, start)
	t.NoteNumber("Arange", out.tensor(), 1, step)
	return out.tensor()
}
