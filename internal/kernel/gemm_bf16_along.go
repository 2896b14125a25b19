package kernel

// passAlong is the state of one call for few rows of A; see alongKernel.
type passAlong struct {
	*engineBF16
	g     GemmBF16 // a copy: a pointer would move the caller's to the heap
	words int      // of a row of A
	// The workspace: A as words, a tile of sums, and its bias.
	a, sums, bias []float32
}

// alongPays reports whether so many rows of g are computed by the kernels in along.
func (e *engineBF16) alongPays(g *GemmBF16, rows int) bool {
	return e.along != nil && !g.TransA && g.TransB && rows <= fewRows && g.K >= alongLeast && g.N >= e.packedCols(1) && rows*e.wordsOf(g.K) <= keptB
}

// alongBlock computes a block of the result for few rows of A.
func (e *engineBF16) alongBlock(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	p := passAlong{engineBF16: e, g: *g, words: e.wordsOf(g.K)}
	p.a, ws = ws[:(i1-i0)*p.words], ws[(i1-i0)*p.words:]
	p.bias, p.sums = ws[:e.cols], ws[e.cols:]
	clear(p.bias)
	for i := i0; i < i1; i++ {
		p.wordsOfRow(p.a[(i-i0)*p.words:][:p.words], g.A[i*g.LDA:][:g.K])
	}
	cols := e.packedCols(1)
	for j := j0; j < j1; j += cols {
		n := min(cols, j1-j)
		if g.Bias != nil {
			BF16ToF32(p.bias[:n], g.Bias[j:j+n])
		}
		for i := i0; i < i1; i += len(e.along) {
			p.tileOf(i, min(len(e.along), i1-i), j, n, p.a[(i-i0)*p.words:])
		}
	}
}

// wordsOfRow converts a row of A to words.
func (e *engineBF16) wordsOfRow(dst []float32, src []BF16) {
	if e.pair == 1 {
		BF16ToF32(dst, src)
		return
	}
	to := halves(dst)
	clear(to[copy(to, src):])
}

// tileOf computes h rows from i on, whose A is a, and n columns from j on. The kernel
// computes all its columns: if n has fewer, others of B are read.
func (p *passAlong) tileOf(i, h, j, n int, a []float32) {
	g, cols := &p.g, p.cols
	first := min(j, g.N-p.packedCols(1))
	tile := p.sums[j-first:]
	if g.Beta != 0 {
		for r := range h {
			for c := range n {
				tile[r*cols+c] = g.Beta * g.get(i+r, j+c)
			}
		}
	}
	kc := p.pair * p.kBlock(p.words)
	for k := 0; k < g.K; k += kc {
		var from *float32
		if k > 0 || g.Beta != 0 {
			from = &p.sums[0]
		}
		p.along[h-1](min(kc, g.K-k), &a[k/p.pair], 4*p.words, (*uint16)(&g.B[first*g.LDB+k]), 2*g.LDB, &p.sums[0], 4*cols, from, 4*cols, g.Alpha)
	}
	if g.H == nil {
		copyTile(g.C[i*g.LDC+j:], g.LDC, tile, cols, h, n)
		return
	}
	p.round(g.H[i*g.LDC+j:], g.LDC, tile, cols, h, n, p.bias)
}
