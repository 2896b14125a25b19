package kernel

const (
	// dotSide is the largest number of rows and columns of a tile of dot products.
	dotSide = 5
	// dotLeast is the least K for dot products. For a smaller K, adding up the
	// lanes costs more than the lanes that stay empty in a vector of columns.
	dotLeast = 256
)

// dots reports whether g is computed as dot products: rows of A and columns of B
// are contiguous, and there are too few columns to fill a vector. The answer is the
// same for all parts of a cut.
func (e *engine[T]) dots(g *Gemm[T]) bool {
	return e.dot != nil && !g.TransA && g.TransB && g.N <= 2*dotSide && g.K >= dotLeast
}

// dotColumns is columns for dot products: nothing is packed.
func (p *gemmPass[T]) dotColumns(g *Gemm[T], j0, j1 int) {
	for i := p.i0; i < p.i1; {
		h := 1
		if p.i1-i >= dotSide {
			h = dotSide
		}
		for j := j0; j < j1; {
			n := 1
			if j1-j >= dotSide {
				n = dotSide
			}
			c := g.C[i*g.LDC+j:]
			p.dot(h, n, p.k, &g.A[i*g.LDA+p.k0], g.LDA, &g.B[j*g.LDB+p.k0], g.LDB, c, g.LDC, p.from(g, i, j, c), g.Alpha)
			j += n
		}
		i += h
	}
	if g.Act != NoActivation && p.k0+p.k == g.K {
		g.finish(p.i0, p.i1, j0, j1)
	}
}
