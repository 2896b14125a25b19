package kernel

import (
	"fmt"
	"unsafe"
)

// The fast GEMM follows Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008). A block of A is packed so that it stays in the L2 cache,
// and a panel of B, as wide as the micro-tile, so that it stays in L1. A
// micro-kernel keeps one tile of C in registers while it runs through both.

// engine is the GEMM of one instruction set and element type.
type engine[T Float] struct {
	rows, cols int // the largest micro-tile; cols is a power of two
	lanes      int // elements of a vector
	step       int // panel heights are multiples of it; a power of two
	kc, mc, nc int // block sizes: K, rows in L2, columns in L3
	// direct: tile can use A and B without packing. If not set, B must be packed
	// always, and so must A.
	direct bool
	// narrow: there is a micro-kernel for tiles of at most lanes columns. It needs
	// B packed [k][lanes].
	narrow bool
	// crop: tile reads and writes only n columns; otherwise it uses all cols
	// columns.
	crop bool
	// tile is the micro-kernel: C[0:h, 0:n] = alpha*A*B, plus the rows of from if
	// there are any. It computes several tiles, one below the other.
	tile func(tiles, h, n, k int, a, b operand[T], c []T, cs int, from operand[T], alpha T)
	// dot is the micro-kernel for h x n dot products of rows of A and of B; h and n
	// are 1 or dotSide (nil: none).
	dot func(h, n, k int, a *T, as int, b *T, bs int, c []T, cs int, from operand[T], alpha T)
	// along are the micro-kernels for few rows of A, indexed by the number of rows
	// less one; the engine of float32 has some for bfloat16, too (nil: none).
	along     []alongKernel[T, T]
	alongBF16 []alongKernel[float32, uint16]
	// Vector kernels for packing (nil: plain Go), with strides in bytes.
	copyRows  [copyVectors]func(dst *T, ds int, src *T, ss, n int) // of 1, 2, ... vectors
	transpose func(dst *T, ds int, src *T, ss, w, blocks int)
	// transposePast is transpose for w = lanes rows, with stores that bypass the
	// caches.
	transposePast func(dst *T, ds int, src *T, ss, blocks int)
	peak          func(n int) // n turns of peakChains multiply-adds (nil: no assembly)
}

// copyVectors is the number of vectors in the longest side of a micro-tile: that of
// float64 in NEON.
const copyVectors = 6

// operand is a matrix for a micro-kernel: rows that are stride elements apart or,
// for an A without byRows, columns.
type operand[T Float] struct {
	at     *T // nil: none
	stride int
	byRows bool
	next   int // distance from the A of a tile to that of the tile below
}

// after is the address of element i.
func (o *operand[T]) after(i int) *T {
	if o.at == nil {
		return nil
	}
	return (*T)(unsafe.Add(unsafe.Pointer(o.at), i*int(unsafe.Sizeof(*o.at))))
}

// callProducts is the largest number of multiply-adds for one call of tile, which
// computes at least one tile: Go cannot preempt assembly.
const callProducts = 300_000

// packedTile is tile for packed B; if add is set, the product is added to C.
func (e *engine[T]) packedTile(h, n, k int, a operand[T], b []T, bs int, c []T, cs int, alpha T, add bool) {
	var from operand[T]
	if add {
		from = operand[T]{at: &c[0], stride: cs}
	}
	e.tile(1, h, n, k, a, operand[T]{at: &b[0], stride: bs}, c, cs, from, alpha)
}

// slack is the room, in elements, for vector stores beyond the end of packed A and
// for aligning the workspace.
const slack = 64

func (e *engine[T]) workspace() int {
	return (e.nc+e.mc)*e.kc + e.rows*e.cols + slack
}

// kBlock is the length of the blocks of K. It must depend on K alone, or the bits
// of C would depend on how C is cut.
func (e *engine[T]) kBlock(k int) int {
	if k <= e.kc {
		return e.kc
	}
	blocks := (k + e.kc - 1) / e.kc
	return min(e.kc, ((k+blocks-1)/blocks+15)&^15)
}

// panelHeight divides m rows into panels of equal height, except for the last one.
func (e *engine[T]) panelHeight(m int) int {
	h := m
	if m > e.rows {
		panels := (m + e.rows - 1) / e.rows
		h = (m + panels - 1) / panels
	}
	return (h + e.step - 1) &^ (e.step - 1)
}

// gemmPass is the state of one call for a block, without the Gemm: a pointer to it
// here would move the caller's Gemm to the heap.
type gemmPass[T Float] struct {
	*engine[T]
	i0, i1 int // rows of C
	k0, k  int // start and length of the block of K
	// The workspace: packed A, packed B, one tile of C.
	a, b, edge []T
}

func (e *engine[T]) block(g *Gemm[T], ws []T, i0, i1, j0, j1 int) {
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
	empty := g.K == 0 || g.Alpha == 0
	if empty || (g.Beta != 0 && g.Beta != 1) {
		g.scaleC(i0, i1, j0, j1)
	}
	if empty {
		if g.Act != NoActivation {
			g.finish(i0, i1, j0, j1)
		}
		return
	}
	p := gemmPass[T]{engine: e, i0: i0, i1: i1}
	p.cutWorkspace(ws)
	kc, dots := e.kBlock(g.K), e.dots(g)
	if !dots && p.alongPays(g) {
		p.alongColumns(g, j0, j1)
		return
	}
	turned := !dots && p.turns(g)
	for j := j0; j < j1; j += e.nc {
		for p.k0 = 0; p.k0 < g.K; p.k0 += kc {
			p.k = min(kc, g.K-p.k0)
			if dots {
				p.dotColumns(g, j, min(j+e.nc, j1))
			} else if turned {
				p.turnedColumns(g, j, min(j+e.nc, j1))
			} else {
				p.columns(g, j, min(j+e.nc, j1))
			}
		}
	}
}

// scaleC multiplies a block of C by Beta, or copies From to it. If Beta is 0, C is
// not read.
func (g *Gemm[T]) scaleC(i0, i1, j0, j1 int) {
	for i := i0; i < i1; i++ {
		row := g.C[i*g.LDC+j0 : i*g.LDC+j1]
		if g.From != nil {
			copy(row, g.From[i*g.LDFrom+j0:i*g.LDFrom+j1])
			continue
		}
		if g.Beta == 0 {
			clear(row)
			continue
		}
		for j := range row {
			row[j] *= g.Beta
		}
	}
}

// cutWorkspace makes packed B start at a cache line: its rows are whole vectors.
func (p *gemmPass[T]) cutWorkspace(ws []T) {
	const line = 64
	size := unsafe.Sizeof(ws[0])
	if off := uintptr(unsafe.Pointer(&ws[0])) % line; off != 0 {
		ws = ws[(line-off)/size:]
	}
	p.b, ws = ws[:p.nc*p.kc], ws[p.nc*p.kc:]
	p.edge, p.a = ws[:p.rows*p.cols], ws[p.rows*p.cols:]
}

// columns computes columns [j0, j1), at most nc of them, for one block of K.
func (p *gemmPass[T]) columns(g *Gemm[T], j0, j1 int) {
	m, blocks := p.i1-p.i0, 1 // few divisions, which cost time in small products
	if m > p.mc {
		blocks = (m + p.mc - 1) / p.mc
	}
	flatA, flatB := p.flatA(g, j1-j0), p.flatB(g)
	last := g.Act != NoActivation && p.k0+p.k == g.K
	for i := range blocks {
		lo, hi := p.i0, p.i1
		if blocks > 1 {
			lo, hi = p.i0+m*i/blocks, p.i0+m*(i+1)/blocks
		}
		h, whole := p.panelHeight(hi-lo), 1
		if h != hi-lo {
			whole = (hi - lo) / h
		}
		done := j0 // columns that are done
		if !flatA {
			p.packA(g, lo, hi, h)
		}
		for j := j0; j < j1; j += p.cols {
			n := min(p.cols, j1-j)
			group := (j - j0) & (packGroup*p.cols - 1)
			slot := p.b[group*p.k:]
			if blocks > 1 { // keep it for the other blocks of rows
				slot = p.b[(j-j0)*p.k:]
			}
			var b operand[T]
			if flatB && (n == p.cols || p.crop) {
				b = operand[T]{at: &g.B[p.k0*g.LDB+j], stride: g.LDB}
			} else {
				if i == 0 && flatB {
					p.packB(g, slot, j, n)
				} else if i == 0 && group == 0 {
					p.packB(g, slot, j, min(packGroup*p.cols, j1-j))
				}
				b = operand[T]{at: &slot[0], stride: p.packedCols(n)}
			}
			p.tilesOf(g, whole, lo, h, j, n, p.panelA(g, lo, lo, h, flatA), b)
			if r := lo + whole*h; r < hi {
				p.tilesOf(g, 1, r, hi-r, j, n, p.panelA(g, r, lo, hi-r, flatA), b)
			}
			if next := j + n; last && ((next-j0)&(finishColumns*p.cols-1) == 0 || next == j1) {
				g.finish(lo, hi, done, next)
				done = next
			}
		}
	}
}

// from is what is added to the tile of C at row i and column j.
func (p *gemmPass[T]) from(g *Gemm[T], i, j int, c []T) operand[T] {
	switch {
	case p.k0 == 0 && g.From != nil:
		return operand[T]{at: &g.From[i*g.LDFrom+j], stride: g.LDFrom}
	case p.k0 > 0 || g.Beta != 0:
		return operand[T]{at: &c[0], stride: g.LDC}
	}
	return operand[T]{}
}

// tilesOf computes tiles of C, one below the other. If the micro-kernel cannot
// crop, the last columns are computed in a tile of the workspace, by the same
// kernel and so with the same bits.
func (p *gemmPass[T]) tilesOf(g *Gemm[T], tiles, i, h, j, n int, a, b operand[T]) {
	most := tiles
	if !p.crop && n < p.cols {
		most = 1
	} else if tile := h * p.cols * p.k; tiles*tile > callProducts {
		most = max(1, callProducts/tile)
	}
	for done := 0; done < tiles; done += most {
		at, r := a, i+done*h
		at.at = a.after(done * a.next)
		if p.crop || n == p.cols {
			c := g.C[r*g.LDC+j:]
			p.tile(min(most, tiles-done), h, n, p.k, at, b, c, g.LDC, p.from(g, r, j, c), g.Alpha)
		} else {
			p.edgeTile(g, r, h, j, n, at, b)
		}
	}
}

func (p *gemmPass[T]) edgeTile(g *Gemm[T], i, h, j, n int, a, b operand[T]) {
	c := g.C[i*g.LDC+j:]
	from := p.from(g, i, j, c)
	if from.at != nil {
		rows := unsafe.Slice(from.at, (h-1)*from.stride+n)
		for r := range h {
			copy(p.edge[r*p.cols:r*p.cols+n], rows[r*from.stride:])
		}
		from = operand[T]{at: &p.edge[0], stride: p.cols}
	}
	p.tile(1, h, n, p.k, a, b, p.edge, p.cols, from, g.Alpha)
	for r := range h {
		copy(c[r*g.LDC:r*g.LDC+n], p.edge[r*p.cols:r*p.cols+n])
	}
}
