package cpu

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// GemmWorkspaceBF16 is GemmWorkspace for bfloat16.
type GemmWorkspaceBF16 struct {
	Gemm   kernel.GemmBF16
	Memory []float32
}

// matmulBF16 is matmulKernel for bfloat16. Sums are float32, rounded once at the end.
func matmulBF16(q tensor.Queue, a *tensor.Args) {
	c := q.(*Queue)
	GemmWorkspaceBF16Of(c, 0) // makes those of all threads
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

// GemmWorkspaceBF16Of is GemmWorkspaceOf for bfloat16.
func GemmWorkspaceBF16Of(q *Queue, thread int) *GemmWorkspaceBF16 {
	for len(q.workspacesBF16) < q.pool.n {
		q.workspacesBF16 = append(q.workspacesBF16, GemmWorkspaceBF16{Memory: spare[float32](kernel.GemmBF16Workspace())})
	}
	return &q.workspacesBF16[thread]
}

func matmulBF16Whole(q *Queue, a *tensor.Args, lo, hi, thread int) {
	l := &q.workspacesBF16[thread]
	for b := lo; b < hi; b++ {
		l.set(a, b)
		kernel.GemmBF16Block(&l.Gemm, l.Memory, 0, l.Gemm.M, 0, l.Gemm.N)
	}
}

func matmulBF16Blocks(q *Queue, a *tensor.Args, lo, hi, thread int) {
	l := &q.workspacesBF16[thread]
	l.set(a, a.I[4])
	for i := lo; i < hi; i++ {
		i0, i1 := kernel.GemmPart(l.Gemm.M, a.I[2], i/a.I[3])
		j0, j1 := kernel.GemmPart(l.Gemm.N, a.I[3], i%a.I[3])
		kernel.GemmBF16Block(&l.Gemm, l.Memory, i0, i1, j0, j1)
	}
}

func (l *GemmWorkspaceBF16) set(a *tensor.Args, b int) {
	at := func(i int) []tensor.BF16 {
		off := b * a.Stride[i][0]
		return unsafe.Slice((*tensor.BF16)(unsafe.Add(a.X[i], 2*off)), a.Len[i]-off)
	}
	l.Gemm = kernel.GemmBF16{TransA: a.I[0] != 0, TransB: a.I[1] != 0, M: a.Dim[1], N: a.Dim[2], K: a.Dim[3], Alpha: 1, Beta: float32(a.F[0]),
		H: at(0), LDC: a.Stride[0][1], A: at(1), LDA: a.Stride[1][1], B: at(2), LDB: a.Stride[2][1]}
	if a.N > 3 {
		l.Gemm.Bias = slice[tensor.BF16](a, 3)
	}
}
