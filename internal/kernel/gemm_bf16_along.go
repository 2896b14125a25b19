package kernel

// passAlong is the state of one call for few rows of A; see alongKernel.
type passAlong struct {
	*engineBF16
	g     GemmBF16 // a copy: a pointer would move the caller's to the heap
	words int      // of a row of A
	// The workspace: A as words, a tile of sums with rows of cols elements, and its
	// bias.
	a, sums, bias []float32
}

// alongPays reports whether so many rows of g are computed by the kernels in along.
func (e *engineBF16) alongPays(g *GemmBF16, rows int) bool {
	return e.along != nil && !g.TransA && g.TransB && rows <= fewRows && g.K >= alongLeast && g.N >= e.cols && rows*e.wordsOf(g.K) <= keptB
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
	for j := j0; j < j1; j += e.cols {
		p.columns(i0, i1, j, min(e.cols, j1-j))
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

// columns computes n columns from j on. The kernels compute all their columns: if n
// has fewer, others of B are read.
func (p *passAlong) columns(i0, i1, j, n int) {
	g, ss := &p.g, p.cols
	first := min(j, g.N-p.cols)
	sums, rows := p.sums[j-first:], i1-i0
	if g.Beta != 0 {
		for r := range rows {
			for c := range n {
				sums[r*ss+c] = g.Beta * g.get(i0+r, j+c)
			}
		}
	}
	kc := p.pair * p.kBlock(p.words)
	for k := 0; k < g.K; k += kc {
		p.addBlock(rows, first, k, min(kc, g.K-k))
	}
	if g.H == nil {
		copyTile(g.C[i0*g.LDC+j:], g.LDC, sums, ss, rows, n)
		return
	}
	if g.Bias != nil {
		BF16ToF32(p.bias[:n], g.Bias[j:j+n])
	}
	p.round(g.H[i0*g.LDC+j:], g.LDC, sums, ss, rows, n, p.bias)
}

// addBlock adds the products of n elements of K from k on.
func (p *passAlong) addBlock(rows, first, k, n int) {
	g, ss, next := &p.g, p.cols, 0
	if k+n == g.K {
		next = 2 * (p.cols*g.LDB - g.K)
	}
	for i := 0; i < rows; i += len(p.along) {
		sums, from := &p.sums[i*ss], (*float32)(nil)
		if k > 0 || g.Beta != 0 {
			from = sums
		}
		run := p.along[min(len(p.along), rows-i)-1]
		run(n, &p.a[i*p.words+k/p.pair], 4*p.words, (*uint16)(&g.B[first*g.LDB+k]), 2*g.LDB, sums, 4*ss, from, 4*ss, g.Alpha, next)
	}
}
