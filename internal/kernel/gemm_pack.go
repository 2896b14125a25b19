package kernel

import "unsafe"

const (
	// packGroup panels of B are packed together, so that longer runs of memory are
	// read.
	packGroup = 4
	// packDepth rows are copied to all panels of a group before the next rows.
	packDepth = 16

	// Up to these sizes, in bytes, an operand is not packed: it stays in the cache,
	// and packing costs more than it saves.
	flatBytesA = 256 << 10
	flatBytesB = 1 << 20

	// Lines whose distance is a multiple of a page use the same set of L1. A set has
	// setWays lines at least.
	page, cacheLine, setWays = 4096, 64, 8
)

// flatA reports whether A is not packed, for n columns of C.
func (p *gemmPass[T]) flatA(g *Gemm[T], n int) bool {
	size := int(unsafe.Sizeof(g.Alpha))
	few := n <= 2*p.cols
	small := g.M*g.K*size <= flatBytesA && !p.crowdedA(g)
	return p.direct && (few || small)
}

// crowdedA reports whether the lines of A that a tile reads evict each other from L1.
func (p *gemmPass[T]) crowdedA(g *Gemm[T]) bool {
	lines := p.rows
	if g.TransA {
		lines = p.k
	}
	return crowded(g.LDA*int(unsafe.Sizeof(g.Alpha)), lines)
}

// crowded reports whether the sets of L1 that so many lines, stride bytes apart, use
// have too little room for them.
func crowded(stride, lines int) bool {
	sets := page / cacheLine
	for sets > 1 && stride%(2*cacheLine) == 0 {
		sets, stride = sets/2, stride/2
	}
	return lines > sets*setWays
}

// flatB reports whether B is not packed.
func (p *gemmPass[T]) flatB(g *Gemm[T]) bool {
	size, m := int(unsafe.Sizeof(g.Alpha)), p.i1-p.i0
	few := m <= 5*p.rows
	small := m <= p.mc || g.K*g.N*size <= flatBytesB
	return p.direct && !g.TransB && (few || small && g.LDB*size%page != 0)
}

// packA packs rows [lo, hi) of the current block of op(A) as panels of height h,
// one after the other, each [k][h]. The last one may be lower.
func (p *gemmPass[T]) packA(g *Gemm[T], lo, hi, h int) {
	if g.TransA {
		p.packRows(p.a, h, false, g.A[p.k0*g.LDA+lo:], g.LDA, hi-lo, p.k)
		return
	}
	for i := lo; i < hi; i += h {
		w := min(h, hi-i)
		p.packTransposed(p.a[(i-lo)*p.k:], w, g.A[i*g.LDA+p.k0:], g.LDA, w, p.k)
	}
}

// panelA is the panel of op(A) from row r on, h rows high; lo is the first row
// of packed A.
func (p *gemmPass[T]) panelA(g *Gemm[T], r, lo, h int, flat bool) operand[T] {
	switch {
	case !flat:
		return operand[T]{at: &p.a[(r-lo)*p.k], stride: h, next: h * p.k}
	case g.TransA:
		return operand[T]{at: &g.A[p.k0*g.LDA+r], stride: g.LDA, next: h}
	}
	return operand[T]{at: &g.A[r*g.LDA+p.k0], stride: g.LDA, byRows: true, next: h * g.LDA}
}

// packB packs columns [j, j+n) of the current block of op(B) as panels of cols
// columns, one after the other.
func (p *gemmPass[T]) packB(g *Gemm[T], dst []T, j, n int) {
	if !g.TransB {
		p.packRows(dst, p.cols, true, g.B[p.k0*g.LDB+j:], g.LDB, n, p.k)
		return
	}
	for c := 0; c < n; c += p.cols {
		w := min(p.cols, n-c)
		p.packTransposed(dst[c*p.k:], p.packedCols(w), g.B[(j+c)*g.LDB+p.k0:], g.LDB, w, p.k)
	}
}

// packedCols is the number of elements from one row to the next in a packed panel
// of n columns of B.
func (e *engine[T]) packedCols(n int) int {
	if e.narrow && n <= e.lanes {
		return e.lanes
	}
	return e.cols
}

// packRows packs n columns of k rows of src as panels of w columns, one after the
// other. The rows of the last panel have its width or, with padded, w.
func (e *engine[T]) packRows(dst []T, w int, padded bool, src []T, ss, n, k int) {
	for r := 0; r < k; r += packDepth {
		for c := 0; c < n; c += w {
			cols := min(w, n-c)
			ds := cols
			if padded {
				ds = e.packedCols(cols)
			}
			rows := min(packDepth, k-r)
			e.copyBlock(dst[c*k+r*ds:], ds, src[r*ss+c:], ss, cols, rows, r+rows == k)
		}
	}
}

// copyBlock copies n rows of w elements from src to dst, whose rows are ss and ds
// elements apart. It copies whole vectors. What it writes after the w elements of a
// row is overwritten by the next row, or never used. The last row of a panel must
// write no more than w.
func (e *engine[T]) copyBlock(dst []T, ds int, src []T, ss, w, n int, last bool) {
	fast := 0
	if vectors := (w + e.lanes - 1) / e.lanes; e.copyRows[vectors-1] != nil {
		fast = n
		if last && ds < vectors*e.lanes {
			fast--
		}
		fast = min(fast, (len(src)-vectors*e.lanes+ss)/ss) // read inside src only
		if fast > 0 {
			size := int(unsafe.Sizeof(dst[0]))
			e.copyRows[vectors-1](&dst[0], ds*size, &src[0], ss*size, fast)
		}
	}
	for r := max(fast, 0); r < n; r++ {
		copy(dst[r*ds:r*ds+w], src[r*ss:r*ss+w])
	}
}

// packTransposed writes the transpose of the w x n matrix src to dst. If n is less
// than a vector, it may write rows of dst up to a vector.
func (e *engine[T]) packTransposed(dst []T, ds int, src []T, ss, w, n int) {
	size := int(unsafe.Sizeof(dst[0]))
	// Whole vectors are written, so from the last to the first: the others
	// overwrite what the last one wrote into the next row.
	for i := (w - 1) / e.lanes * e.lanes; i >= 0; i -= e.lanes {
		rows := min(e.lanes, w-i)
		if e.transpose == nil || n < e.lanes {
			e.packShort(dst[i:], ds, src[i*ss:], ss, rows, n)
			continue
		}
		e.transpose(&dst[i], ds*size, &src[i*ss], ss*size, rows, n/e.lanes)
		if n%e.lanes != 0 { // the last block overlaps the one before
			k := n - e.lanes
			e.transpose(&dst[k*ds+i], ds*size, &src[i*ss+k], ss*size, rows, 1)
		}
	}
}

// packShort is packTransposed for up to lanes rows that are shorter than a vector.
// It reads whole vectors, if there is memory after the rows.
func (e *engine[T]) packShort(dst []T, ds int, src []T, ss, w, n int) {
	fast := 0
	if e.transpose != nil && len(dst) >= (e.lanes-1)*ds+e.lanes && len(src) >= e.lanes {
		size := int(unsafe.Sizeof(dst[0]))
		fast = min(w, (len(src)-e.lanes)/ss+1)
		e.transpose(&dst[0], ds*size, &src[0], ss*size, fast, 1)
	}
	for i := fast; i < w; i++ {
		for k, v := range src[i*ss : i*ss+n] {
			dst[k*ds+i] = v
		}
	}
}

// PackRows copies n rows of w elements, which are ss elements apart in src, to dst,
// where they are contiguous.
func PackRows[T Float](dst, src []T, ss, w, n int) {
	if single[T]() {
		packRows(active.gemm32, *(*[]float32)(unsafe.Pointer(&dst)), *(*[]float32)(unsafe.Pointer(&src)), ss, w, n)
		return
	}
	packRows(active.gemm64, *(*[]float64)(unsafe.Pointer(&dst)), *(*[]float64)(unsafe.Pointer(&src)), ss, w, n)
}

func packRows[T Float](e *engine[T], dst, src []T, ss, w, n int) {
	if w == 0 || n == 0 {
		return
	}
	_, _ = dst[n*w-1], src[(n-1)*ss+w-1]
	fast := 0
	if vectors := (w + e.lanes - 1) / e.lanes; vectors <= copyVectors && e.copyRows[vectors-1] != nil {
		// Whole vectors are copied, inside both slices: the next row overwrites
		// what was written after the w elements.
		reach, size := vectors*e.lanes, int(unsafe.Sizeof(dst[0]))
		if at := min(n*w, len(dst)) - reach; at >= 0 && len(src) >= reach {
			fast = min(n, at/w+1, (len(src)-reach)/max(ss, 1)+1)
			e.copyRows[vectors-1](&dst[0], w*size, &src[0], ss*size, fast)
		}
	}
	for r := fast; r < n; r++ {
		copy(dst[r*w:][:w], src[r*ss:])
	}
}
