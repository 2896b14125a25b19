package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// groupedKernel is OpGroupedLinear: see Tape.grouped for the arguments. Threads share the rows of the output equally, across the borders of
// groups, so groups of any size are balanced.
func groupedKernel[T kernel.Float](workspaces func(q *cpuQueue) *[]gemmWorkspace[T]) Kernel {
	part := func(q *cpuQueue, a *Args, lo, hi, thread int) {
		l, first, n, k := &(*workspaces(q))[thread], 0, a.Dim[1], a.Dim[2]
		for e, count := range slice[int64](a, 3) {
			m := int(count)
			l.g = kernel.Gemm[T]{M: m, N: n, K: k, TransB: a.I[0] != 0, Alpha: 1, Beta: T(a.F[0]), A: slice[T](a, 1)[first*k:], LDA: k,
				B: slice[T](a, 2)[e*n*k:], LDB: n, C: slice[T](a, 0)[first*n:], LDC: n}
			if l.g.TransB {
				l.g.LDB = k
			}
			kernel.GemmBlock(&l.g, l.ws, max(0, lo-first), min(m, hi-first), 0, n)
			first += m
		}
	}
	return func(q Queue, a *Args) {
		c := q.(*cpuQueue)
		checkCounts(slice[int64](a, 3), a.Dim[0])
		growWorkspaces(c, workspaces(c))
		c.pool.run(c, a, a.Dim[0], (4*c.pool.grain-1)/max(a.Dim[1]*a.Dim[2], 1)+1, 1, part)
	}
}

func groupedGradKernel[T kernel.Float](workspaces func(q *cpuQueue) *[]gemmWorkspace[T]) Kernel {
	part := func(q *cpuQueue, a *Args, lo, hi, thread int) {
		l, first, n, k := &(*workspaces(q))[thread], 0, a.Dim[1], a.Dim[2]
		for e, count := range slice[int64](a, 3) {
			l.g = kernel.Gemm[T]{M: n, N: k, K: int(count), TransA: true, Alpha: 1, Beta: T(a.F[0]), A: slice[T](a, 1)[first*n:], LDA: n,
				B: slice[T](a, 2)[first*k:], LDB: k, C: slice[T](a, 0)[e*n*k:], LDC: k}
			kernel.GemmBlock(&l.g, l.ws, lo, hi, 0, k)
			first += int(count)
		}
	}
	return func(q Queue, a *Args) {
		c := q.(*cpuQueue)
		checkCounts(slice[int64](a, 3), a.Dim[0])
		growWorkspaces(c, workspaces(c))
		c.pool.run(c, a, a.Dim[1], (4*c.pool.grain-1)/max(a.Dim[0]*a.Dim[2], 1)+1, 16, part)
	}
}
