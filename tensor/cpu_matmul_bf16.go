package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// bf16Workspace is what one thread of the pool needs to multiply bfloat16 matrices.
type bf16Workspace struct {
	g  kernel.GemmBF16
	ws []float32
}

// matmulBF16 is matmulKernel for bfloat16. Sums are float32, rounded once at the end.
func matmulBF16(q Queue, a *Args) {
	c := q.(*CPUQueue)
	growBF16(c)
	batch, m, n, k := a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3]
	if batch >= c.pool.n && batch > 1 {
		c.pool.run(c, a, batch, (4*c.pool.grain-1)/max(m*n*k, 1)+1, 1, matmulBF16Whole)
		return
	}
	a.I[2], a.I[3] = kernel.GemmSplit(m, n, k, c.pool.n)
	for a.I[4] = 0; a.I[4] < batch; a.I[4]++ {
		c.pool.run(c, a, a.I[2]*a.I[3], 1, 1, matmulBF16Blocks)
	}
}

// growBF16 is growWorkspaces for bfloat16.
func growBF16(c *CPUQueue) {
	for len(c.workspacesBF16) < c.pool.n {
		c.workspacesBF16 = append(c.workspacesBF16, bf16Workspace{ws: spare[float32](kernel.GemmBF16Workspace())})
	}
}

func matmulBF16Whole(q *CPUQueue, a *Args, lo, hi, thread int) {
	l := &q.workspacesBF16[thread]
	for b := lo; b < hi; b++ {
		l.set(a, b)
		kernel.GemmBF16Block(&l.g, l.ws, 0, l.g.M, 0, l.g.N)
	}
}

func matmulBF16Blocks(q *CPUQueue, a *Args, lo, hi, thread int) {
	l := &q.workspacesBF16[thread]
	l.set(a, a.I[4])
	for i := lo; i < hi; i++ {
		i0, i1 := kernel.GemmPart(l.g.M, a.I[2], i/a.I[3])
		j0, j1 := kernel.GemmPart(l.g.N, a.I[3], i%a.I[3])
		kernel.GemmBF16Block(&l.g, l.ws, i0, i1, j0, j1)
	}
}

func (l *bf16Workspace) set(a *Args, b int) {
	at := func(i int) []BF16 {
		off := b * a.Stride[i][0]
		return unsafe.Slice((*BF16)(unsafe.Add(a.X[i], 2*off)), a.Len[i]-off)
	}
	l.g = kernel.GemmBF16{TransA: a.I[0] != 0, TransB: a.I[1] != 0, M: a.Dim[1], N: a.Dim[2], K: a.Dim[3], Alpha: 1, Beta: float32(a.F[0]),
		H: at(0), LDC: a.Stride[0][1], A: at(1), LDA: a.Stride[1][1], B: at(2), LDB: a.Stride[2][1]}
	if a.N > 3 {
		l.g.Bias = slice[BF16](a, 3)
	}
}
