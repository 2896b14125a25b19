package kernel

import (
	"fmt"
	"unsafe"
)

// Gemm is one matrix product C = Alpha*op(A)*op(B) + Beta*C, or + From, on
// row-major matrices, where op is the identity or the transpose. An activation
// of the result can follow.
//
// op(A) is M x K, op(B) is K x N and C is M x N. LDA, LDB and LDC are the
// elements from one row of the stored matrix to the next, so A is stored M x K,
// or K x M with TransA.
//
// As in BLAS, Beta = 0 means that C is not read (a NaN in it disappears), and
// Alpha = 0 or K = 0 that A and B are not read: the result is Beta*C. C must
// not overlap the other matrices.
type Gemm[T Float] struct {
	TransA, TransB bool
	M, N, K        int
	Alpha          T
	A              []T
	LDA            int
	B              []T
	LDB            int
	Beta           T
	C              []T
	LDC            int

	// From, if not nil, is an M x N matrix that the product is added to instead of
	// C, as if it were copied to C and Beta were 1. LDFrom = 0 repeats its first
	// row: a bias.
	From   []T
	LDFrom int
	// Act is applied to the result. The output is C or, if Out is not nil, Out,
	// whose rows are LDC elements apart.
	Act Activation
	Out []T
}

// RefGemm computes g by its definition. It is the specification and the test oracle
// of [GemmBlock].
func RefGemm[T Float](g *Gemm[T]) {
	g.check()
	for i := range g.M {
		for j := range g.N {
			var ab T
			if g.Alpha != 0 && g.K > 0 {
				for k := range g.K {
					ab += g.at(i, k) * g.bt(k, j)
				}
				ab *= g.Alpha
			}
			c := &g.C[i*g.LDC+j]
			switch {
			case g.From != nil:
				*c = ab + g.From[i*g.LDFrom+j]
			case g.Beta == 0:
				*c = ab
			default:
				*c = ab + g.Beta**c
			}
		}
	}
	if g.Act != NoActivation {
		g.finish(0, g.M, 0, g.N)
	}
}

// at is element (i, k) of op(A).
func (g *Gemm[T]) at(i, k int) T {
	if g.TransA {
		return g.A[k*g.LDA+i]
	}
	return g.A[i*g.LDA+k]
}

// bt is element (k, j) of op(B).
func (g *Gemm[T]) bt(k, j int) T {
	if g.TransB {
		return g.B[j*g.LDB+k]
	}
	return g.B[k*g.LDB+j]
}

// check panics unless the slices hold the matrices: the assembly of GemmBlock does
// not check bounds.
func (g *Gemm[T]) check() {
	checkMatrix("A", g.TransA, g.M, g.K, g.LDA, len(g.A))
	checkMatrix("B", g.TransB, g.K, g.N, g.LDB, len(g.B))
	checkMatrix("C", false, g.M, g.N, g.LDC, len(g.C))
	if g.Out != nil {
		checkMatrix("Out", false, g.M, g.N, g.LDC, len(g.Out))
	}
	if g.From == nil {
		return
	}
	if g.LDFrom == 0 {
		checkMatrix("From", false, min(g.M, 1), g.N, g.N, len(g.From))
	} else {
		checkMatrix("From", false, g.M, g.N, g.LDFrom, len(g.From))
	}
	if g.Beta != 0 {
		panic("kernel: gemm: both From and Beta")
	}
}

func checkMatrix(name string, trans bool, rows, cols, ld, n int) {
	if trans {
		rows, cols = cols, rows
	}
	switch {
	case rows < 0 || cols < 0:
		panic(fmt.Sprintf("kernel: gemm: %s is %d x %d", name, rows, cols))
	case rows == 0 || cols == 0:
	case ld < cols || n < (rows-1)*ld+cols:
		panic(fmt.Sprintf("kernel: gemm: %s is %d x %d with leading stride %d, in %d elements", name, rows, cols, ld, n))
	}
}

// WorkspaceLen is the number of elements of workspace for one call of [GemmBlock],
// for any shape.
func WorkspaceLen[T Float]() int {
	if single[T]() {
		return active.gemm32.workspace()
	}
	return active.gemm64.workspace()
}

// GemmBlock computes rows [i0, i1) and columns [j0, j1) of g's C on the calling
// goroutine. Blocks that do not overlap may be computed at the same time, each with
// its own workspace ws of at least [WorkspaceLen] elements.
//
// The bits of C do not depend on how it is cut into blocks, and those of a row not on
// the other rows: alone it has the bits that it has in a batch. K is cut into blocks
// whose bounds depend on K only. For each, an element is one chain of additions in
// the order of k, multiplied by Alpha and added to C in the order of the blocks.
// (If the operands' rows lie along K and N is small, there may be a sum for each
// lane of a vector, and then their sum.) The bits do depend on the instruction set,
// see [CPU].
func GemmBlock[T Float](g *Gemm[T], ws []T, i0, i1, j0, j1 int) {
	// T may be a named type; convert to the kernels of its underlying type.
	if single[T]() {
		active.gemm32.block((*Gemm[float32])(unsafe.Pointer(g)), *(*[]float32)(unsafe.Pointer(&ws)), i0, i1, j0, j1)
		return
	}
	active.gemm64.block((*Gemm[float64])(unsafe.Pointer(g)), *(*[]float64)(unsafe.Pointer(&ws)), i0, i1, j0, j1)
}
