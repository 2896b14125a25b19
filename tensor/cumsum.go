package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

func init() {
	define(OpCumSum, OpSpec{Name: "cumsum", VJP: cumSumVJP, CPU: numbers(cumSumKernel[float32, float64](), cumSumKernel[float64, float64](),
		cumSumKernel[int32, int32](), cumSumKernel[int64, int64](), cumSumKernel[uint8, uint8]())})
}

// CumSum returns the running sums along dim, as torch.cumsum: element i is the sum of x's elements 0 to i. Floats are added in float64, and
// each result is rounded once. The type stays the same: integers wrap around (see Cast).
func (x Tensor) CumSum(dim int) Tensor {
	t := tapeOf("cumsum", x)
	in := t.contiguous(t.arg(x))
	d := in.axis("cumsum", dim)
	out := t.newLike(in)
	t.cumSum(out, in, d, false)
	if n := t.rec(OpCumSum, out, in); n != nil {
		n.I[0] = d
	}
	if t.typing() {
		t.notAlong("cumsum", out, in, d, false)
	}
	return out.tensor()
}

// cumSum launches the running sums of x along dimension d; from the end if reverse.
func (t *Tape) cumSum(out, x *header, d int, reverse bool) {
	if x.n == 0 {
		return
	}
	a := t.Args(OpCumSum, x.dtype)
	a.out(out).in(x)
	a.Dim[0], a.Dim[1], a.Dim[2] = x.split3(d)
	a.I[0] = b2i(reverse)
	t.Launch()
}

// Element i is part of sums i to n−1, so its gradient is the sum of their gradients.
func cumSumVJP(t *Tape, n *Node, _ uint8) {
	d := t.newLike(n.out)
	t.cumSum(d, n.out.grad, n.I[0], true)
	t.addGrad(n.in[0], d)
}

func cumSumLines(a *Args) int { return a.Dim[0] * a.Dim[2] }

// cumSumKernel adds in type S.
func cumSumKernel[T, S kernel.Number]() Kernel {
	return Parallel(cumSumLines, dim1, func(a *Args, lo, hi int) {
		y, x := slice[T](a, 0), slice[T](a, 1)
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
