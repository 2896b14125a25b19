package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// groupedKernel is OpGroupedLinear: see Tape.grouped for the arguments. Threads share the rows of the output equally, across the borders of
// groups, so groups of any size are balanced.
func groupedKernel[T kernel.Float](workspaces func(q *CPUQueue) *[]GemmWorkspace[T]) Kernel {
	return groupedLaunch(growing(workspaces), 0, 1, 1, func(q *CPUQueue, a *Args, lo, hi, thread int) {
		l, first, n, k := &(*workspaces(q))[thread], 0, a.Dim[1], a.Dim[2]
		for e, count := range slice[int64](a, 3) {
			m := int(count)
			l.Gemm = kernel.Gemm[T]{M: m, N: n, K: k, TransB: a.I[0] != 0, Alpha: 1, Beta: T(a.F[0]), A: slice[T](a, 1)[first*k:], LDA: k,
				B: slice[T](a, 2)[e*n*k:], LDB: n, C: slice[T](a, 0)[first*n:], LDC: n}
			if l.Gemm.TransB {
				l.Gemm.LDB = k
			}
			kernel.GemmBlock(&l.Gemm, l.Memory, max(0, lo-first), min(m, hi-first), 0, n)
			first += m
		}
	})
}

func groupedGradKernel[T kernel.Float](workspaces func(q *CPUQueue) *[]GemmWorkspace[T]) Kernel {
	return groupedLaunch(growing(workspaces), 1, 0, 16, func(q *CPUQueue, a *Args, lo, hi, thread int) {
		l, first, n, k := &(*workspaces(q))[thread], 0, a.Dim[1], a.Dim[2]
		for e, count := range slice[int64](a, 3) {
			l.Gemm = kernel.Gemm[T]{M: n, N: k, K: int(count), TransA: true, Alpha: 1, Beta: T(a.F[0]), A: slice[T](a, 1)[first*n:], LDA: n,
				B: slice[T](a, 2)[first*k:], LDB: k, C: slice[T](a, 0)[e*n*k:], LDC: k}
			kernel.GemmBlock(&l.Gemm, l.Memory, lo, hi, 0, k)
			first += int(count)
		}
	})
}

// groupedBF16 is groupedKernel for bfloat16, and groupedGradBF16 is groupedGradKernel. Sums are float32, rounded once at the end.
var (
	groupedBF16 = groupedLaunch(growBF16, 0, 1, 1, func(q *CPUQueue, a *Args, lo, hi, thread int) {
		l, first, n, k := &q.workspacesBF16[thread], 0, a.Dim[1], a.Dim[2]
		for e, count := range slice[int64](a, 3) {
			m := int(count)
			l.g = kernel.GemmBF16{M: m, N: n, K: k, TransB: a.I[0] != 0, Alpha: 1, Beta: float32(a.F[0]), A: slice[BF16](a, 1)[first*k:], LDA: k,
				B: slice[BF16](a, 2)[e*n*k:], LDB: n, H: slice[BF16](a, 0)[first*n:], LDC: n}
			if l.g.TransB {
				l.g.LDB = k
			}
			kernel.GemmBF16Block(&l.g, l.ws, max(0, lo-first), min(m, hi-first), 0, n)
			first += m
		}
	})

	groupedGradBF16 = groupedLaunch(growBF16, 1, 0, 32, func(q *CPUQueue, a *Args, lo, hi, thread int) {
		l, first, n, k := &q.workspacesBF16[thread], 0, a.Dim[1], a.Dim[2]
		for e, count := range slice[int64](a, 3) {
			l.g = kernel.GemmBF16{M: n, N: k, K: int(count), TransA: true, Alpha: 1, Beta: float32(a.F[0]), A: slice[BF16](a, 1)[first*n:], LDA: n,
				B: slice[BF16](a, 2)[first*k:], LDB: k, H: slice[BF16](a, 0)[e*n*k:], LDC: k}
			kernel.GemmBF16Block(&l.g, l.ws, lo, hi, 0, k)
			first += int(count)
		}
	})
)

// groupedLaunch makes a kernel whose threads share dimension shared of the arguments, in multiples of align; the work of an item is the
// product of the other two, other and 2. grow makes the threads' workspaces.
func groupedLaunch(grow func(c *CPUQueue), shared, other, align int, part Part) Kernel {
	return func(q Queue, a *Args) {
		c := q.(*CPUQueue)
		checkCounts(slice[int64](a, 3), a.Dim[0])
		grow(c)
		c.pool.run(c, a, a.Dim[shared], (4*c.pool.grain-1)/max(a.Dim[other]*a.Dim[2], 1)+1, align, part)
	}
}

func growing[T kernel.Float](workspaces func(q *CPUQueue) *[]GemmWorkspace[T]) func(c *CPUQueue) {
	return func(c *CPUQueue) { growWorkspaces(c, workspaces(c)) }
}
