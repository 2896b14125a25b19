package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// OpCumSum is the operation of CumSum, and of its gradient.
var OpCumSum tensor.Op

func init() {
	OpCumSum = registerAll(tensor.OpSpec{Name: "cumsum", Rows: tensor.RowsByCaller, VJP: cumSumVJP},
		numbers(cumSumKernel[float32, float64](), cumSumKernel[float64, float64](), cumSumKernel[int32, int32](),
			cumSumKernel[int64, int64](), cumSumKernel[uint8, uint8]()))
}

// CumSum returns the running sums of x along dim, as torch.cumsum: element i is the sum of elements 0 to i. Floats are added in float64,
// and each result is rounded once. The type stays the same: integers wrap around (see tensor.Tensor.Cast).
func CumSum(x tensor.Tensor, dim int) tensor.Tensor {
	t := OpCumSum.Tape(x)
	x = t.Packed(x)
	dim = axis(OpCumSum, x, dim)
	out := t.NewLike(x)
	cumSum(t, out, x, dim, false)
	if n := t.Record(OpCumSum, out, x); n != nil {
		n.I[0] = dim
	}
	t.NotAlong(OpCumSum, out, x, dim)
	return out
}

// cumSum launches the running sums of x along dimension dim; from the end if reverse.
func cumSum(t *tensor.Tape, out, x tensor.Tensor, dim int, reverse bool) {
	if x.Len() == 0 {
		return
	}
	a := t.Args(OpCumSum, x.DType()).Out(out).In(x)
	d, rank := dimsOf(x)
	a.Dim[0], a.Dim[1], a.Dim[2] = product(d[:dim]), d[dim], product(d[dim+1:rank])
	a.I[0] = b2i(reverse)
	t.Launch()
}

// Element i is part of sums i to n−1, so its gradient is the sum of their gradients.
func cumSumVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	d := t.NewLike(n.Grad())
	cumSum(t, d, n.Grad(), n.I[0], true)
	t.AddGrad(n, 0, d)
}

func cumSumLines(a *tensor.Args) int { return a.Dim[0] * a.Dim[2] }

// cumSumKernel adds in type S.
func cumSumKernel[T, S number]() tensor.Kernel {
	return cpu.Parallel(cumSumLines, dim1, func(a *tensor.Args, lo, hi int) {
		y, x := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1)
		n, inner := a.Dim[1], a.Dim[2]
		for line := lo; line < hi; line++ {
			at, step := line/inner*n*inner+line%inner, inner
			if a.I[0] != 0 {
				at, step = at+(n-1)*inner, -inner
			}
			var sum S
			for range n {
				sum += S(x[at])
				y[at] = T(sum)
				at += step
			}
		}
	})
}
