package cpu

import (
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// GemmWorkspace is what one thread of a CPU device needs to multiply matrices: a product, and memory in which it packs operands.
type GemmWorkspace[T kernel.Float] struct {
	Gemm   kernel.Gemm[T]
	Memory []T
}

func workspace32(q *Queue) *[]GemmWorkspace[float32] { return &q.workspaces32 }
func workspace64(q *Queue) *[]GemmWorkspace[float64] { return &q.workspaces64 }

// matmulKernel multiplies a batch of matrices: see Tape.gemm for the arguments. If there are many matrices, a thread gets whole ones; if
// there are few and they are large, they are cut into blocks. The bits of the result are the same.
func matmulKernel[T kernel.Float](workspaces func(q *Queue) *[]GemmWorkspace[T]) tensor.Kernel {
	whole := func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		l := &(*workspaces(q))[thread]
		for b := lo; b < hi; b++ {
			l.set(a, b)
			kernel.GemmBlock(&l.Gemm, l.Memory, 0, l.Gemm.M, 0, l.Gemm.N)
		}
	}
	blocks := func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		l := &(*workspaces(q))[thread]
		l.set(a, a.I[4])
		for i := lo; i < hi; i++ {
			i0, i1 := kernel.GemmPart(l.Gemm.M, a.I[2], i/a.I[3])
			j0, j1 := kernel.GemmPart(l.Gemm.N, a.I[3], i%a.I[3])
			kernel.GemmBlock(&l.Gemm, l.Memory, i0, i1, j0, j1)
		}
	}
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*Queue)
		growWorkspaces(c, workspaces(c))
		batch, m, n, k := a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3]
		if batch >= c.pool.n && batch > 1 {
			c.pool.run(c, a, batch, (4*c.pool.grain-1)/max(m*n*k, 1)+1, 1, whole)
			return
		}
		a.I[2], a.I[3] = kernel.GemmSplit(m, n, k, c.pool.n)
		if a.I[2]*a.I[3] == 1 {
			whole(c, a, 0, batch, 0)
			return
		}
		for a.I[4] = 0; a.I[4] < batch; a.I[4]++ {
			c.pool.run(c, a, a.I[2]*a.I[3], 1, 1, blocks)
		}
	}
}

// GemmWorkspaceOf returns the workspace of a thread of q. A kernel calls it for all threads before it divides its work.
func GemmWorkspaceOf[T kernel.Float](q *Queue, thread int) *GemmWorkspace[T] {
	all, ok := any(&q.workspaces32).(*[]GemmWorkspace[T])
	if !ok {
		all = any(&q.workspaces64).(*[]GemmWorkspace[T])
	}
	growWorkspaces(q, all)
	return &(*all)[thread]
}

// growWorkspaces makes sure that every thread has a workspace.
func growWorkspaces[T kernel.Float](c *Queue, all *[]GemmWorkspace[T]) {
	for len(*all) < c.pool.n {
		*all = append(*all, GemmWorkspace[T]{Memory: spare[T](kernel.WorkspaceLen[T]())})
	}
}

// spares32 and spares64 hold the workspaces of devices that were closed. A new workspace must be cleared, page by page, which takes longer
// than small products do.
var spares32, spares64 sync.Pool

func sparesOf[T kernel.Float]() *sync.Pool {
	if _, double := any(T(0)).(float64); double {
		return &spares64
	}
	return &spares32
}

// spare returns a workspace of n elements or more, with any content.
func spare[T kernel.Float](n int) []T {
	if ws, ok := sparesOf[T]().Get().(*[]T); ok && len(*ws) >= n {
		return *ws
	}
	return make([]T, n)
}

// freeWorkspaces gives the memory of threads that have ended to other devices. What kernels keep may use it, too.
func (q *Queue) freeWorkspaces() {
	for i := range q.workspaces32 {
		spares32.Put(&q.workspaces32[i].Memory)
	}
	for i := range q.workspaces64 {
		spares64.Put(&q.workspaces64[i].Memory)
	}
	for i := range q.workspacesBF16 {
		spares32.Put(&q.workspacesBF16[i].Memory)
	}
	q.workspaces32, q.workspaces64, q.workspacesBF16, q.locals = nil, nil, nil, nil
}

// set makes l.Gemm the product of matrix b of the batch. With two outputs, C keeps the input of the activation, and Out gets its result.
func (l *GemmWorkspace[T]) set(a *tensor.Args, b int) {
	at := func(operand, stride int) []T {
		off := b * a.Stride[stride][0]
		return unsafe.Slice((*T)(unsafe.Add(a.X[operand], off*int(unsafe.Sizeof(*new(T))))), a.Len[operand]-off)
	}
	// Fields are set one by one: a literal would be built and copied, which is slow for small products.
	in, g := a.Outs, &l.Gemm
	g.TransA, g.TransB, g.M, g.N, g.K = a.I[0] != 0, a.I[1] != 0, a.Dim[1], a.Dim[2], a.Dim[3]
	g.Alpha, g.Beta, g.Act = 1, T(a.F[0]), tensor.Activation(a.I[5])
	g.A, g.LDA, g.B, g.LDB = at(in, 1), a.Stride[1][1], at(in+1, 2), a.Stride[2][1]
	g.C, g.LDC, g.Out, g.From, g.LDFrom = at(0, 0), a.Stride[0][1], nil, nil, 0
	if in == 2 {
		g.Out = at(1, 0)
	}
	if a.N > in+2 {
		g.From = slice[T](a, in+2)
	}
}

func actGradKernel[T kernel.Float]() tensor.Kernel {
	return spread(dim1, dim0, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		var sum []T
		if a.Outs == 2 {
			sum = slice[T](a, 1)
		}
		d, g, from := slice[T](a, 0), slice[T](a, a.Outs), slice[T](a, a.Outs+1)
		kernel.ActivateGradColSum(tensor.Activation(a.I[0]), sum, d, g, from, a.Dim[0], a.Dim[1], lo, hi)
	})
}
