package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// groupedKernel is OpGroupedLinear: see grouped for the arguments. Threads share the rows of the output equally, across the borders of
// groups, so groups of any size are balanced.
func groupedKernel[T float]() tensor.Kernel {
	return groupedLaunch(growWorkspaces[T], 0, 1, 1, func(q *cpu.Queue, a *tensor.Args, lo, hi, thread int) {
		l, first, n, k := cpu.GemmWorkspaceOf[T](q, thread), 0, a.Dim[1], a.Dim[2]
		x, w, y := tensor.Operand[T](a, 1), tensor.Operand[T](a, 2), tensor.Operand[T](a, 0)
		for e, count := range tensor.Operand[int64](a, 3) {
			m := int(count)
			l.Gemm = kernel.Gemm[T]{M: m, N: n, K: k, TransB: a.I[0] != 0, Alpha: 1, Beta: T(a.F[0]), A: x[first*k:], LDA: k,
				B: w[e*n*k:], LDB: n, C: y[first*n:], LDC: n}
			if l.Gemm.TransB {
				l.Gemm.LDB = k
			}
			kernel.GemmBlock(&l.Gemm, l.Memory, max(0, lo-first), min(m, hi-first), 0, n)
			first += m
		}
	})
}

func groupedGradKernel[T float]() tensor.Kernel {
	return groupedLaunch(growWorkspaces[T], 1, 0, 16, func(q *cpu.Queue, a *tensor.Args, lo, hi, thread int) {
		l, first, n, k := cpu.GemmWorkspaceOf[T](q, thread), 0, a.Dim[1], a.Dim[2]
		g, x, dw := tensor.Operand[T](a, 1), tensor.Operand[T](a, 2), tensor.Operand[T](a, 0)
		for e, count := range tensor.Operand[int64](a, 3) {
			l.Gemm = kernel.Gemm[T]{M: n, N: k, K: int(count), TransA: true, Alpha: 1, Beta: T(a.F[0]), A: g[first*n:], LDA: n,
				B: x[first*k:], LDB: k, C: dw[e*n*k:], LDC: k}
			kernel.GemmBlock(&l.Gemm, l.Memory, lo, hi, 0, k)
			first += int(count)
		}
	})
}

// groupedBF16 is groupedKernel for bfloat16, and groupedGradBF16 is groupedGradKernel. Sums are float32, rounded once at the end.
var (
	groupedBF16 = groupedLaunch(growBF16, 0, 1, 1, func(q *cpu.Queue, a *tensor.Args, lo, hi, thread int) {
		l, first, n, k := cpu.GemmWorkspaceBF16Of(q, thread), 0, a.Dim[1], a.Dim[2]
		x, w, y := tensor.Operand[tensor.BF16](a, 1), tensor.Operand[tensor.BF16](a, 2), tensor.Operand[tensor.BF16](a, 0)
		for e, count := range tensor.Operand[int64](a, 3) {
			m := int(count)
			l.Gemm = kernel.GemmBF16{M: m, N: n, K: k, TransB: a.I[0] != 0, Alpha: 1, Beta: float32(a.F[0]), A: x[first*k:], LDA: k,
				B: w[e*n*k:], LDB: n, H: y[first*n:], LDC: n}
			if l.Gemm.TransB {
				l.Gemm.LDB = k
			}
			kernel.GemmBF16Block(&l.Gemm, l.Memory, max(0, lo-first), min(m, hi-first), 0, n)
			first += m
		}
	})

	groupedGradBF16 = groupedLaunch(growBF16, 1, 0, 32, func(q *cpu.Queue, a *tensor.Args, lo, hi, thread int) {
		l, first, n, k := cpu.GemmWorkspaceBF16Of(q, thread), 0, a.Dim[1], a.Dim[2]
		g, x, dw := tensor.Operand[tensor.BF16](a, 1), tensor.Operand[tensor.BF16](a, 2), tensor.Operand[tensor.BF16](a, 0)
		for e, count := range tensor.Operand[int64](a, 3) {
			l.Gemm = kernel.GemmBF16{M: n, N: k, K: int(count), TransA: true, Alpha: 1, Beta: float32(a.F[0]), A: g[first*n:], LDA: n,
				B: x[first*k:], LDB: k, H: dw[e*n*k:], LDC: k}
			kernel.GemmBF16Block(&l.Gemm, l.Memory, lo, hi, 0, k)
			first += int(count)
		}
	})
)

// groupedLaunch makes a kernel whose threads share dimension shared of the arguments, in multiples of align; the work of an item is the
// product of the other two, other and 2. grow makes the threads' workspaces.
func groupedLaunch(grow func(q *cpu.Queue), shared, other, align int, part cpu.Part) tensor.Kernel {
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*cpu.Queue)
		checkCounts(tensor.Operand[int64](a, 3), a.Dim[0])
		grow(c)
		c.Run(a, a.Dim[shared], (4*c.Grain()-1)/max(a.Dim[other]*a.Dim[2], 1)+1, align, part)
	}
}

func growWorkspaces[T float](q *cpu.Queue) { cpu.GemmWorkspaceOf[T](q, 0) }

func growBF16(q *cpu.Queue) { cpu.GemmWorkspaceBF16Of(q, 0) }
