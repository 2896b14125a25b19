package kernel

import "unsafe"

// A product of few rows of A by a B whose columns lie along K (a layer's weights, for
// the next token of a text) takes as long as reading B. Packing B would take longer
// than the product, so micro-kernels of their own transpose it in registers. An
// element is the same chain of multiply-adds as in a product of many rows, so it has
// the same bits.

const (
	// fewRows is the largest number of rows of A for which this pays, and alongLeast
	// the least K.
	fewRows    = 4
	alongLeast = 32
)

// alongKernel is a micro-kernel for some rows of A and cols columns of B that lie
// along K, bs bytes apart: C = alpha*A*B plus the rows of from. If k is no multiple of
// a vector and there are no masks, elements before a and b are read, too. What lies
// ahead is asked for: behind these parts of columns, next bytes further.
type alongKernel[A, B any] func(k int, a *A, as int, b *B, bs int, c *A, cs int, from *A, fs int, alpha A, next int)

// alongPays reports whether rows [i0, i1) of g are computed by the kernels in along.
func (p *gemmPass[T]) alongPays(g *Gemm[T]) bool {
	return p.along != nil && !g.TransA && g.TransB && p.i1-p.i0 <= fewRows && g.K >= alongLeast && g.N >= p.cols
}

// alongColumns computes columns [j0, j1) for few rows of A.
func (p *gemmPass[T]) alongColumns(g *Gemm[T], j0, j1 int) {
	cols, kc := p.cols, p.kBlock(g.K)
	for j := j0; j < j1; j += cols {
		n := min(cols, j1-j)
		for p.k0 = 0; p.k0 < g.K; p.k0 += kc {
			p.k = min(kc, g.K-p.k0)
			for i := p.i0; i < p.i1; i += len(p.along) {
				p.alongTile(g, i, min(len(p.along), p.i1-i), j, n)
			}
		}
	}
	if g.Act != NoActivation {
		g.finish(p.i0, p.i1, j0, j1)
	}
}

// alongTile computes a tile for a block of K. The kernel computes all its columns: if
// n has fewer, others of B are read, and the tile goes to the workspace.
func (p *gemmPass[T]) alongTile(g *Gemm[T], i, h, j, n int) {
	cols, size := p.cols, int(unsafe.Sizeof(g.Alpha))
	first := min(j, g.N-cols)
	c, cs := g.C[i*g.LDC+j:], g.LDC
	from := p.from(g, i, j, c)
	edge := p.edge[j-first:]
	if n < cols {
		if from.at != nil {
			copyTile(edge, cols, unsafe.Slice(from.at, (h-1)*from.stride+n), from.stride, h, n)
			from = operand[T]{at: &p.edge[0], stride: cols}
		}
		c, cs = p.edge, cols
	}
	next := 0 // the next block of K
	if p.k0+p.k == g.K {
		next = (cols*g.LDB - g.K) * size
	}
	p.along[h-1](p.k, &g.A[i*g.LDA+p.k0], g.LDA*size, &g.B[first*g.LDB+p.k0], g.LDB*size, &c[0], cs*size, from.at, from.stride*size,
		g.Alpha, next)
	if n < cols {
		copyTile(g.C[i*g.LDC+j:], g.LDC, edge, cols, h, n)
	}
}

// copyTile copies h rows of n elements.
func copyTile[T Float](dst []T, ds int, src []T, ss, h, n int) {
	for r := range h {
		copy(dst[r*ds:r*ds+n], src[r*ss:r*ss+n])
	}
}
