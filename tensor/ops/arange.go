package ops

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// OpArange is the operation of Arange.
var OpArange tensor.Op

func init() {
	OpArange = registerAll(tensor.OpSpec{Name: "arange", Const: true},
		numbers(arangeKernel[float32](), arangeKernel[float64](), arangeKernel[int32](), arangeKernel[int64](), arangeKernel[uint8]()))
}

// Arange returns start, start+step, start+2·step and so on, up to but without end, in type d, as torch.arange. Elements are computed in
// float64. If d is an integer type, they must be integers that d can hold, of magnitude 2^53 at most.
func Arange(t *tensor.Tape, d tensor.DType, start, end, step float64) tensor.Tensor {
	n := math.Ceil((end - start) / step)
	if !(n >= 0) || n > 1<<48 { // also NaN; more than a tensor can have
		OpArange.Fail(nil, "from %v to %v in steps of %v", start, end, step)
	}
	if last := start + float64(max(n-1, 0)*step); !d.IsFloat() && n > 0 {
		for _, v := range []float64{start, step, last} {
			if v != math.Trunc(v) || math.Abs(v) > 1<<53 || v != step && saturate(d, v) != int(v) {
				OpArange.Fail(nil, "%v from %v to %v in steps of %v: %v does not fit the type", d, start, end, step, v)
			}
		}
	}
	out := t.New(d, int(n))
	if n > 0 {
		a := t.Args(OpArange, d).Out(out)
		a.F[0], a.F[1] = start, step
		t.Launch()
	}
	t.NoteNumber("Arange", out, 0, start)
	t.NoteNumber("Arange", out, 1, step)
	return out
}

func arangeKernel[T number]() tensor.Kernel {
	return cpu.Parallel(outLen, one, func(a *tensor.Args, lo, hi int) {
		for i, y := lo, tensor.Operand[T](a, 0); i < hi; i++ {
			y[i] = T(a.F[0] + float64(float64(i)*a.F[1])) // rounded twice, as on other devices
		}
	})
}
