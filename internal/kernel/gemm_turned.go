package kernel

import "unsafe"

// If A has few rows and those of B lie along K (a layer's weights), packing B takes
// long: it is read from far away for little arithmetic. Then the product is computed
// as C' = B*A', with the unpacked B in the place of A, and its tiles are transposed
// into C. An element is the same chain of multiply-adds, so it has the same bits.

// turnedLeast is the least size of B: packing a smaller one takes less time than
// transposing tiles.
const turnedLeast = 1 << 13

// turns reports whether the block is computed transposed: whether packing B takes
// longer than transposing tiles, and than the empty columns of the last tile.
func (p *gemmPass[T]) turns(g *Gemm[T]) bool {
	if g.K*g.N < turnedLeast || !p.crop || !p.direct || p.transpose == nil || g.TransA || !g.TransB || g.Alpha != 1 {
		return false
	}
	m, kBlocks := p.i1-p.i0, (g.K+p.kc-1)/p.kc
	if m > packCost*p.cols || crowded(g.LDB*int(unsafe.Sizeof(g.Alpha)), p.rows) {
		return false
	}
	empty := -m & (p.lanes - 1) // columns of the last tile
	if m > p.cols && empty > 0 {
		return false
	}
	return 3*empty+packCost*m*kBlocks/g.K < packCost // measured
}

// turnedColumns is columns for a product that is computed transposed.
func (p *gemmPass[T]) turnedColumns(g *Gemm[T], j0, j1 int) {
	for i := p.i0; i < p.i1; i += p.nc { // as many rows as packed B has room for
		rows := min(p.nc, p.i1-i)
		for r := 0; r < rows; r += p.cols {
			w := min(p.cols, rows-r)
			p.packTransposed(p.b[r*p.k:], p.packedCols(w), g.A[(i+r)*g.LDA+p.k0:], g.LDA, w, p.k)
		}
		blocks := (j1 - j0 + p.mc - 1) / p.mc
		for b := range blocks {
			lo, hi := j0+(j1-j0)*b/blocks, j0+(j1-j0)*(b+1)/blocks
			for r := 0; r < rows; r += p.cols {
				w := min(p.cols, rows-r)
				p.turnedTiles(g, lo, hi, w, operand[T]{at: &p.b[r*p.k], stride: p.packedCols(w)})
				p.turn(g, i+r, w, lo, hi)
			}
		}
	}
	if g.Act != NoActivation && p.k0+p.k == g.K {
		g.finish(p.i0, p.i1, j0, j1)
	}
}

// turnedTiles computes rows [lo, hi) of B times n columns of packed A'. It writes
// them to the workspace, as rows of cols elements.
func (p *gemmPass[T]) turnedTiles(g *Gemm[T], lo, hi, n int, a operand[T]) {
	h := p.panelHeight(hi - lo)
	most := max(1, callProducts/(h*p.cols*p.k))
	for r := lo; r < hi; {
		tiles := 1
		if r+h <= hi {
			tiles = min(most, (hi-r)/h)
		}
		height := min(h, hi-r)
		b := operand[T]{at: &g.B[r*g.LDB+p.k0], stride: g.LDB, byRows: true, next: h * g.LDB}
		p.tile(tiles, height, n, p.k, b, a, p.a[(r-lo)*p.cols:], p.cols, operand[T]{}, 1)
		r += tiles * height
	}
}

// turn writes the transpose of the tiles, hi-lo rows of n elements, to rows [i, i+n)
// and columns [lo, hi) of C. It adds what must be added.
func (p *gemmPass[T]) turn(g *Gemm[T], i, n, lo, hi int) {
	w, size := hi-lo, int(unsafe.Sizeof(g.Alpha))
	c := g.C[i*g.LDC+lo:]
	from := p.from(g, i, lo, c)
	if from.at == nil && n%p.lanes == 0 && w >= p.lanes {
		for r := 0; r < w; r += p.lanes {
			r = min(r, w-p.lanes) // the last block overlaps the one before
			p.transpose(&c[r], g.LDC*size, &p.a[r*p.cols], p.cols*size, p.lanes, n/p.lanes)
		}
		return
	}
	ds, t := p.mc, p.a[p.mc*p.cols:]
	p.packTransposed(t, ds, p.a, p.cols, w, n)
	if from.at == nil {
		for r := range n {
			copy(c[r*g.LDC:r*g.LDC+w], t[r*ds:])
		}
		return
	}
	rows := unsafe.Slice(from.at, (n-1)*from.stride+w)
	for r := range n {
		sumOf(c[r*g.LDC:r*g.LDC+w], rows[r*from.stride:r*from.stride+w], t[r*ds:r*ds+w])
	}
}
