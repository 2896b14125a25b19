package kernel

// inPlace computes what product of an engine that sums pairs does, to the bit, for up to fewRows rows of A, packed, and cols columns of B that
// lie as rows of b, of k elements and bs apart: they need no packing, which takes longer than the product. b begins at element k0 of the first
// of so many columns that are left; the processor may ask for those that come next.
type inPlace func(h, k, k0 int, a []float32, b []BF16, bs, left int, c []float32, cs int, alpha float32, add bool)

// inPlaceColumns computes columns from j0 on whose B is multiplied where it lies, and returns where the others begin. A is packed once.
func (p *passBF16) inPlaceColumns(j0, j1 int) int {
	g, h := &p.g, p.i1-p.i0
	words := (g.K + 1) / 2
	if p.inPlace == nil || !g.TransB || h > min(fewRows, p.rows) || h*words+slack > len(p.a) || j1-j0 < p.cols {
		return j0
	}
	if g.TransA {
		p.packA[1](p.a, h, g.A[p.i0:], g.LDA, h, g.K, p.room)
	} else {
		p.packA[0](p.a, h, g.A[p.i0*g.LDA:], g.LDA, h, g.K, p.room)
	}
	kc := 2 * p.kBlock(words)
	for ; j1-j0 >= p.cols; j0 += p.cols {
		for p.k0 = 0; p.k0 < g.K; p.k0 += kc {
			p.k = min(kc, g.K-p.k0)
			p.add, p.last = p.k0 > 0 || g.Beta != 0, p.k0+p.k == g.K
			p.tileOf(p.i0, h, j0, p.cols, 0, nil, 0)
		}
	}
	return j0
}

// multiply is product for a tile; without b its columns of B lie.
func (p *passBF16) multiply(h, j, n int, a, b []float32, bs int, c []float32, cs int) {
	g := &p.g
	if b != nil {
		p.product(h, n, p.words, a, b, bs, c, cs, g.Alpha, p.add)
		return
	}
	p.inPlace(h, p.k, p.k0, p.a[p.k0/2*h:], g.B[j*g.LDB+p.k0:], g.LDB, g.N-j, c, cs, g.Alpha, p.add)
}
