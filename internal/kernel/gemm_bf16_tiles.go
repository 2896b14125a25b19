package kernel

// The tiles of AMX multiply 16 rows of 16 pairs. A micro-tile here is 2 x 2 of them:
// 32 x 32 sums. One operand, X, gives it rows. The other one, Y, gives it columns.
// Sums stay in tiles, or are stored as [32][32], until the last block of K. So the
// bits do not depend on the blocks of K.
//
// Usually X is A and Y is B. But if B lies by columns and A has few rows, packing B
// would cost more than the product. Then X is B, and the sums are transposed.

const (
	tileSide = 16
	tileRows = 2 * tileSide
	tileSums = tileRows * tileRows // of a micro-tile
	// One call multiplies groupTiles with a panel of Y, one below the other.
	groupTiles = 8
	groupRows  = groupTiles * tileRows
	// A call multiplies at most shortKC words of K, or longKC for more than
	// shortRows lines of X: then the block of Y leaves the first-level cache, but
	// fewer sums are loaded. X is packed tileSpan words at a time.
	shortKC   = 256
	longKC    = 512
	shortRows = 128
	tileSpan  = 1024
	// keptX is the number of words of X that are read again for each panel of Y,
	// if groupRows lines do not have more: half of the second-level cache.
	keptX = 1 << 18
	// keptPanels is the least number of panels of Y that are kept for all of X.
	keptPanels = 8
)

// tileKernels are what an engine of tiles has in addition to the packers.
type tileKernels struct {
	// multiply adds the products of some blocks of 32 elements of K to the sums of
	// tiles of h rows, or overwrites the sums if first is set. Rows of a are as
	// elements apart, blocks step, and tiles next.
	multiply func(tiles, h, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool)
	// multiplyRound is multiply for whole tiles. Then it adds the bias and rounds.
	multiplyRound func(tiles, blocks int, a []BF16, as, step, next int, b, sums []float32, first bool, dst []BF16, ds, n int, bias []float32)
	// copy packs up to 32 rows of k elements as blocks of 32 elements.
	copy func(dst []float32, src []BF16, ss, rows, k int)
	// scale computes C[0:h, 0:n] = alpha*sums or, if add is set, adds that to C.
	scale func(c []float32, cs int, sums []float32, h, n int, alpha float32, add bool)
}

// tileEngine makes the engine of tiles. It packs as e does, an engine that sums
// pairs.
func tileEngine(e *engineBF16, tiles tileKernels) *engineBF16 {
	x, base := *e, *e.engine
	base.rows, base.cols, base.mc, base.kc = tileRows, tileRows, groupRows, shortKC
	x.engine, x.tiles, x.along = &base, &tiles, nil
	return &x
}

// sideBF16 is an operand: element k of line i is at i*ld+k, or at k*ld+i.
type sideBF16 struct {
	m     []BF16
	ld    int
	along bool // lines lie along K
}

// from is what begins at element k of line i.
func (s *sideBF16) from(i, k int) []BF16 {
	if s.along {
		return s.m[i*s.ld+k:]
	}
	return s.m[k*s.ld+i:]
}

// passTiles is the state of one call for a block.
type passTiles struct {
	*engineBF16
	g      GemmBF16 // a copy: a pointer would move the caller's to the heap
	x, y   sideBF16
	turned bool // X is B
	words  int  // of K
	keep   bool // packed Y
	pack   bool // Y for these lines of X
	// The current part: lines [lo, hi) of X, words [k0, k1) of K. X is read where
	// it lies up to word flat, and packed from there on.
	lo, hi, k0, k1, flat int
	// The workspace: packed X and Y, room for packing, the sums, two tiles, and a
	// tile's bias.
	packedX, packedY, room, sums, tile, bias []float32
}

func tilesWorkspace() int {
	return keptB + groupRows*tileSpan + packPanels*tileRows*roomWords + groupTiles*tileSums*sumColumns/tileRows + 2*tileSums + tileRows + slack
}

// cut divides the workspace. All parts begin at a cache line.
func (p *passTiles) cut(ws []float32) {
	take := func(n int) []float32 {
		x := ws[:n:n]
		ws = ws[n:]
		return x
	}
	ws = aligned(ws)
	p.packedY, p.packedX = take(keptB), take(groupRows*tileSpan)
	p.room, p.tile, p.bias = take(packPanels*tileRows*roomWords), take(2*tileSums), take(tileRows)
	p.sums = take(groupTiles * tileSums * sumColumns / tileRows)
	clear(p.bias)
}

func (e *engineBF16) tileBlock(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	p := passTiles{engineBF16: e, g: *g, words: tileWords(g.K)}
	p.x, p.y = sideBF16{g.A, g.LDA, !g.TransA}, sideBF16{g.B, g.LDB, g.TransB}
	x0, x1, y0, y1 := i0, i1, j0, j1
	if p.turned = turnPays(p.x, p.y, i1-i0, j1-j0, g.K); p.turned {
		p.x, p.y = p.y, p.x
		x0, x1, y0, y1 = y0, y1, x0, x1
	}
	p.cut(ws)
	span := min(p.words, tileSpan)
	lines := max(groupRows, keptX/span/groupRows*groupRows)
	blocks, columns := (x1-x0+lines-1)/lines, sumColumns
	if panels := keptB / (tileRows * p.words); blocks > 1 && panels >= keptPanels {
		p.keep, columns = true, min(columns, panels*tileRows)
	}
	panels := (x1 - x0 + tileRows - 1) / tileRows
	for y := y0; y < y1; y += columns {
		for b := range blocks {
			p.lo, p.hi = x0+panels*b/blocks*tileRows, min(x1, x0+panels*(b+1)/blocks*tileRows)
			p.pack = b == 0 || !p.keep
			for p.k0 = 0; p.k0 < p.words; p.k0 += span {
				p.k1 = min(p.k0+span, p.words)
				p.columns(y, min(y+columns, y1))
			}
		}
	}
}

// turnPays reports whether X should be B. The costs are about cycles for 16
// elements: to load or copy lines that lie along K, to interleave others, and to
// transpose.
func turnPays(a, b sideBF16, m, n, k int) bool {
	x := func(s sideBF16, n int) int {
		if s.along {
			return n * k / 2
		}
		return 3 * n * k
	}
	y := func(s sideBF16, n int) int {
		if s.along {
			return 3 * n * k
		}
		return n * k
	}
	return x(b, n)+y(a, m)+5*m*n < x(a, m)+y(b, n)
}

// columns computes what the current part contributes to lines [y0, y1) of Y.
func (p *passTiles) columns(y0, y1 int) {
	p.flat = p.k0
	if p.x.along {
		p.flat = max(p.k0, min(p.g.K/tileRows*tileSide, p.k1))
	}
	if p.flat < p.k1 {
		p.packX()
	}
	span := p.k1 - p.k0
	for j := y0; j < y1; j += tileRows {
		n, panel, sums := min(tileRows, y1-j), (j-y0)/tileRows, p.sums
		b, ps := p.packedY[panel%packPanels*tileRows*span:], tileRows*span
		if p.keep {
			ps = tileRows * p.words
			b = p.packedY[panel*ps+p.k0*tileRows:]
		}
		if !p.turned {
			p.widenBias(j, n)
		}
		if span < p.words { // sums of all lines are kept for the next words
			sums = p.sums[(j-y0)*groupRows:]
		}
		packed := 0
		if p.pack && panel%packPanels == 0 {
			packed = min(packPanels*tileRows, y1-j)
		}
		for i := p.lo; i < p.hi; i += groupRows {
			h := min(groupRows, p.hi-i)
			p.group(i, h, j, n, b, ps, packed, sums)
			packed = 0
			if p.k1 == p.words {
				p.finish(i, h, j, n, sums)
			}
		}
	}
}

// group multiplies h lines of X from i on with a panel of Y from j on, block by block
// of K. Before that, it packs the block of packed lines of Y, in panels that are ps
// words apart.
func (p *passTiles) group(i, h, j, n int, b []float32, ps, packed int, sums []float32) {
	longest := shortKC
	if p.hi-p.lo > shortRows {
		longest = longKC
	}
	span := p.k1 - p.k0
	pieces := (span + longest - 1) / longest
	kc := ((span+pieces-1)/pieces + tileSide - 1) / tileSide * tileSide
	for k, end := p.k0, 0; k < p.k1; k = end {
		if end = min(k+kc, p.k1); k < p.flat {
			end = min(end, p.flat)
		}
		y := b[(k-p.k0)*tileRows:]
		if packed > 0 {
			p.packY(y, ps, j, packed, k, end-k)
		}
		p.multiply(i, h, j, n, k, end, y, sums)
	}
}

// multiply multiplies h lines of X from i on with a panel of Y, for words [k, end) of
// K.
func (p *passTiles) multiply(i, h, j, n, k, end int, b, sums []float32) {
	whole, rest, blocks := h/tileRows, h%tileRows, (end-k)/tileSide
	var a []BF16
	var as, step, next int
	if k < p.flat {
		a, as, step, next = p.x.from(i, 2*k), p.x.ld, tileRows, tileRows*p.x.ld
	} else {
		span := p.k1 - p.flat
		a, as, step, next = halves(p.packedX[(i-p.lo)*span+(k-p.flat)*tileRows:]), tileRows, tileSums, 2*tileRows*span
	}
	if whole > 0 && end == p.words && p.rounds() {
		p.tiles.multiplyRound(whole, blocks, a, as, step, next, b, sums, k == 0, p.g.H[i*p.g.LDC+j:], p.g.LDC, n, p.bias)
	} else if whole > 0 {
		p.tiles.multiply(whole, tileRows, blocks, a, as, step, next, b, sums, k == 0)
	}
	if rest > 0 {
		p.tiles.multiply(1, rest, blocks, a[whole*next:], as, step, 0, b, sums[whole*tileSums:], k == 0)
	}
}
