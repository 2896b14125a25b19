package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// gemmLane is what one thread of the pool needs to multiply matrices.
type gemmLane[T kernel.Float] struct {
	g    kernel.Gemm[T]
	bias []T // of each row of C, or nil
	ws   []T
}

func workspace32(q *cpuQueue) *[]gemmLane[float32] { return &q.lanes32 }
func workspace64(q *cpuQueue) *[]gemmLane[float64] { return &q.lanes64 }

// matmulKernel multiplies a batch of matrices: see Tape.gemm for the arguments. Many matrices are shared out whole; few
// large ones are cut into blocks. The bits depend on neither.
func matmulKernel[T kernel.Float](lanes func(q *cpuQueue) *[]gemmLane[T]) Kernel {
	whole := func(q *cpuQueue, a *Args, lo, hi, thread int) {
		l := &(*lanes(q))[thread]
		for b := lo; b < hi; b++ {
			l.set(a, b)
			l.block(0, l.g.M, 0, l.g.N)
		}
	}
	blocks := func(q *cpuQueue, a *Args, lo, hi, thread int) {
		l := &(*lanes(q))[thread]
		l.set(a, a.I[4])
		for i := lo; i < hi; i++ {
			i0, i1 := kernel.GemmPart(l.g.M, a.I[2], i/a.I[3])
			j0, j1 := kernel.GemmPart(l.g.N, a.I[3], i%a.I[3])
			l.block(i0, i1, j0, j1)
		}
	}
	return func(q Queue, a *Args) {
		c := q.(*cpuQueue)
		all := lanes(c)
		for len(*all) < c.pool.n {
			*all = append(*all, gemmLane[T]{ws: make([]T, kernel.WorkspaceLen[T]())})
		}
		batch, m, n, k := a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3]
		if batch >= c.pool.n && batch > 1 {
			c.pool.run(c, a, batch, (4*c.pool.grain-1)/max(m*n*k, 1)+1, 1, whole)
			return
		}
		a.I[2], a.I[3] = kernel.GemmSplit(m, n, k, c.pool.n)
		for a.I[4] = 0; a.I[4] < batch; a.I[4]++ {
			c.pool.run(c, a, a.I[2]*a.I[3], 1, 1, blocks)
		}
	}
}

// block computes rows i0 to i1 and columns j0 to j1 of C.
func (l *gemmLane[T]) block(i0, i1, j0, j1 int) {
	l.addBias(i0, i1, j0, j1)
	kernel.GemmBlock(&l.g, l.ws, i0, i1, j0, j1)
}

// addBias lets the products be added to the bias.
func (l *gemmLane[T]) addBias(i0, i1, j0, j1 int) {
	if l.bias == nil {
		return
	}
	for i := i0; i < i1; i++ {
		copy(l.g.C[i*l.g.LDC+j0:i*l.g.LDC+j1], l.bias[j0:j1])
	}
}

func (l *gemmLane[T]) set(a *Args, b int) {
	at := func(i int) []T {
		off := b * a.Stride[i][0]
		return unsafe.Slice((*T)(unsafe.Add(a.X[i], off*int(unsafe.Sizeof(*new(T))))), a.Len[i]-off)
	}
	l.g = kernel.Gemm[T]{TransA: a.I[0] != 0, TransB: a.I[1] != 0, M: a.Dim[1], N: a.Dim[2], K: a.Dim[3], Alpha: 1, Beta: T(a.F[0]),
		C: at(0), LDC: a.Stride[0][1], A: at(1), LDA: a.Stride[1][1], B: at(2), LDB: a.Stride[2][1]}
	if l.bias = nil; a.N > 3 {
		l.bias, l.g.Beta = slice[T](a, 3), 1
	}
}
