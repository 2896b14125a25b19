package kernel

import (
	"fmt"
	"unsafe"
)

// engineBF16 multiplies bfloat16 matrices with the micro-kernels of another engine.
// The elements (words) of that engine are pairs of bfloat16 numbers that are
// neighbours in K, or single ones converted to float32. Packing makes the words.
type engineBF16 struct {
	*engine[float32]
	pair int // elements of K in a word
	// packA packs a panel of A, packB one of B whose rows are ds words apart. src
	// holds a panel of K rows (packA[1], packB[0]), or its transpose with w rows of
	// k elements; its rows are ss elements apart. ws has room for the words of a
	// panel.
	packA, packB [2]packer
	// product is the micro-kernel: C[0:h, 0:n] = alpha*A*B or, if add is set, C +=
	// that.
	product func(h, n, k int, a operand[float32], b []float32, bs int, c []float32, cs int, alpha float32, add bool)
	tiles   *tileKernels // instead of product; nil: none
	// along are the micro-kernels for few rows of A, indexed by the number of rows
	// less one (nil: none).
	along []alongKernel[float32, uint16]
	// round adds the bias to n columns of sums of a tile and rounds them. It may
	// read cols elements of a row of src and of bias.
	round func(dst []BF16, ds int, src []float32, ss, h, n int, bias []float32)
}

type packer = func(dst []float32, ds int, src []BF16, ss, w, k int, ws []float32)

// widened makes the engine that converts to float32 when it packs.
func widened(e *engine[float32]) *engineBF16 {
	columns := func(dst []float32, ds int, src []BF16, ss, w, k int, ws []float32) {
		for i := range w {
			BF16ToF32(ws[i*k:(i+1)*k], src[i*ss:i*ss+k])
		}
		e.packTransposed(dst, ds, ws, k, w, k)
	}
	rows := func(dst []float32, ds int, src []BF16, ss, w, k int, _ []float32) {
		for i := range k {
			BF16ToF32(dst[i*ds:i*ds+w], src[i*ss:i*ss+w])
		}
	}
	return &engineBF16{engine: e, pair: 1, packA: [2]packer{columns, rows}, packB: [2]packer{rows, columns}, product: e.packedTile,
		along: e.alongBF16, round: roundTile}
}

const (
	// sumColumns is the number of columns whose sums are kept in float32 until the
	// last block of K, if the result is bfloat16.
	sumColumns = 1024
	// keptB is the number of words of packed B that are kept for all rows.
	keptB = 1 << 20
)

func (e *engineBF16) workspace() int {
	if e.tiles != nil {
		return tilesWorkspace()
	}
	return keptB + e.mc*e.kc + e.roomWords() + e.mc*sumColumns + e.rows*e.cols + e.cols + 2*slack
}

// roomWords are the words of the largest panel of A or B.
func (e *engineBF16) roomWords() int { return max(e.rows, e.cols) * e.kc }

// passBF16 is the state of one call for a block.
type passBF16 struct {
	*engineBF16
	g      GemmBF16 // a copy: a pointer would move the caller's to the heap
	i0, i1 int      // rows of the block
	k0, k  int      // first element and number of elements of the block of K
	words  int
	nc     int  // columns of a block
	keep   bool // packed B
	pack   bool // B for these rows
	add    bool // add to the sums of earlier blocks, or to Beta times the result
	last   bool // block of K
	flat   bool // A is not packed
	// The workspace: packed A and B, room for packing, the sums, a tile, and a
	// tile's bias.
	a, b, room, sums, tile, bias []float32
}

func (e *engineBF16) block(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	g.check()
	if i0 < 0 || i1 > g.M || j0 < 0 || j1 > g.N {
		panic(fmt.Sprintf("kernel: gemm: rows [%d, %d) and columns [%d, %d) of %d x %d", i0, i1, j0, j1, g.M, g.N))
	}
	if len(ws) < e.workspace() {
		panic(fmt.Sprintf("kernel: gemm: workspace of %d elements, want %d", len(ws), e.workspace()))
	}
	if i0 >= i1 || j0 >= j1 {
		return
	}
	if g.K == 0 || g.Alpha == 0 {
		for i := i0; i < i1; i++ {
			for j := j0; j < j1; j++ {
				g.put(i, j, g.scaled(i, j))
			}
		}
		return
	}
	if e.alongPays(g, i1-i0) {
		e.alongBlock(g, ws, i0, i1, j0, j1)
		return
	}
	e.packedBlock(g, ws, i0, i1, j0, j1)
}

// packedBlock is block for products that pack their operands, also those of few
// rows.
func (e *engineBF16) packedBlock(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	if g.H == nil && g.Beta != 0 && g.Beta != 1 {
		f := Gemm[float32]{Beta: g.Beta, C: g.C, LDC: g.LDC}
		f.scaleC(i0, i1, j0, j1)
	}
	if e.tiles != nil {
		e.tileBlock(g, ws, i0, i1, j0, j1)
		return
	}
	p := passBF16{engineBF16: e, g: *g}
	p.cut(ws)
	rows := (i1 - i0 + e.mc - 1) / e.mc
	p.plan(rows)
	for j := j0; j < j1; j += p.nc {
		for r := range rows {
			p.i0, p.i1 = i0+(i1-i0)*r/rows, i0+(i1-i0)*(r+1)/rows
			p.pack = r == 0 || !p.keep
			p.columns(j, min(j+p.nc, j1))
		}
	}
}

// plan chooses how many columns to compute at a time. If there are several blocks
// of rows, it takes as many columns as packed B has room for, with all of K.
func (p *passBF16) plan(rows int) {
	p.nc = sumColumns
	if panels := keptB / (p.cols * p.wordsOf(p.g.K)); rows > 1 && panels > 0 {
		p.nc, p.keep = min(sumColumns, panels*p.cols), true
	}
}

// wordsOf is the number of words of k elements.
func (e *engineBF16) wordsOf(k int) int { return (k + e.pair - 1) / e.pair }

// scaled is Beta times an element of the result, which is not read if Beta is 0.
func (g *GemmBF16) scaled(i, j int) float32 {
	if g.Beta == 0 {
		return 0
	}
	return g.Beta * g.get(i, j)
}

// cut divides the workspace. Packed B starts at a cache line.
func (p *passBF16) cut(ws []float32) {
	take := func(n int) []float32 {
		x := ws[:n:n]
		ws = ws[n:]
		return x
	}
	ws = aligned(ws)
	p.b, p.room = take(keptB), take(p.roomWords())
	p.sums, p.tile, p.bias = take(p.mc*sumColumns), take(p.rows*p.cols), take(p.cols)
	clear(p.bias)
	p.a = ws
}

// aligned skips to the first cache line.
func aligned(ws []float32) []float32 {
	const line = 64
	return ws[-uintptr(unsafe.Pointer(&ws[0]))%line/4:]
}

// columns computes columns [j0, j1), at most nc, of the current rows.
func (p *passBF16) columns(j0, j1 int) {
	g := &p.g
	kc := p.pair * p.kBlock(p.wordsOf(g.K))
	h := p.panelHeight(p.i1 - p.i0)
	p.flat = p.flatA()
	for p.k0 = 0; p.k0 < g.K; p.k0 += kc {
		p.k = min(kc, g.K-p.k0)
		p.words = p.wordsOf(p.k)
		p.add, p.last = p.k0 > 0 || g.Beta != 0, p.k0+p.k == g.K
		if !p.flat {
			p.panelsA(h)
		}
		for j := j0; j < j1; j += p.cols {
			n := min(p.cols, j1-j)
			b := p.b
			if p.keep {
				b = b[p.k0/p.pair*p.nc+(j-j0)*p.words:]
			}
			bs := p.panelB(b, j, n)
			for i := p.i0; i < p.i1; i += h {
				p.tileOf(i, min(h, p.i1-i), j, n, j-j0, b, bs)
			}
		}
	}
}

// flatA reports whether A is not packed: its pairs lie as the micro-kernel reads them, and the lines that a tile reads do
// not evict each other from L1.
func (p *passBF16) flatA() bool {
	g := &p.g
	return p.direct && p.pair == 2 && !g.TransA && g.K%2 == 0 && g.LDA%2 == 0 && !crowded(2*g.LDA, p.rows)
}

// panelA is the panel of A of h rows from row i on.
func (p *passBF16) panelA(i, h int) operand[float32] {
	if p.flat {
		return operand[float32]{at: (*float32)(unsafe.Pointer(&p.g.A[i*p.g.LDA+p.k0])), stride: p.g.LDA / 2, byRows: true}
	}
	return operand[float32]{at: &p.a[(i-p.i0)*p.words], stride: h}
}

// panelsA packs the current rows of op(A) as panels of height h.
func (p *passBF16) panelsA(h int) {
	g := &p.g
	for i := p.i0; i < p.i1; i += h {
		w, dst := min(h, p.i1-i), p.a[(i-p.i0)*p.words:]
		if g.TransA {
			p.packA[1](dst, w, g.A[p.k0*g.LDA+i:], g.LDA, w, p.k, p.room)
		} else {
			p.packA[0](dst, w, g.A[i*g.LDA+p.k0:], g.LDA, w, p.k, p.room)
		}
	}
}

// panelB packs columns [j, j+n) of op(B) into b, unless they are packed already,
// and returns the number of words in a row.
func (p *passBF16) panelB(b []float32, j, n int) (bs int) {
	g := &p.g
	bs = p.cols
	if p.narrow && n <= p.lanes {
		bs = p.lanes
	}
	switch {
	case !p.pack:
	case g.TransB:
		p.packB[1](b, bs, g.B[j*g.LDB+p.k0:], g.LDB, n, p.k, p.room)
	default:
		p.packB[0](b, bs, g.B[p.k0*g.LDB+j:], g.LDB, n, p.k, p.room)
	}
	return bs
}

// tileOf computes one tile. Its sums begin at column at of the sums that are kept.
func (p *passBF16) tileOf(i, h, j, n, at int, b []float32, bs int) {
	g := &p.g
	a := p.panelA(i, h)
	if g.H == nil && (p.crop || n == p.cols) {
		p.product(h, n, p.words, a, b, bs, g.C[i*g.LDC+j:], g.LDC, g.Alpha, p.add)
		return
	}
	sums, ss := p.tile, p.cols
	if g.H == nil {
		p.load(i, h, j, n)
		p.product(h, n, p.words, a, b, bs, sums, ss, g.Alpha, p.add)
		for r := range h {
			copy(g.C[(i+r)*g.LDC+j:(i+r)*g.LDC+j+n], sums[r*ss:])
		}
		return
	}
	if !p.last || p.k0 > 0 {
		sums, ss = p.sums[(i-p.i0)*sumColumns+at:], sumColumns
	}
	if p.k0 == 0 && p.add {
		for r := range h {
			row := sums[r*ss : r*ss+n]
			BF16ToF32(row, g.H[(i+r)*g.LDC+j:][:n])
			if g.Beta != 1 {
				for c := range row {
					row[c] *= g.Beta
				}
			}
		}
	}
	p.product(h, n, p.words, a, b, bs, sums, ss, g.Alpha, p.add)
	if p.last {
		if g.Bias != nil {
			BF16ToF32(p.bias[:n], g.Bias[j:j+n])
		}
		p.round(g.H[i*g.LDC+j:], g.LDC, sums, ss, h, n, p.bias)
	}
}

// load copies a tile of C to the workspace, where the product is added to it.
func (p *passBF16) load(i, h, j, n int) {
	if !p.add {
		return
	}
	g := &p.g
	for r := range h {
		copy(p.tile[r*p.cols:r*p.cols+n], g.C[(i+r)*g.LDC+j:])
	}
}
