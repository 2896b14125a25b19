package kernel

import "unsafe"

// packA packs rows [lo, hi) of the current block of op(A) as panels of height
// h, one after the other, each [k][h] (the last may be lower).
func (p *gemmPass[T]) packA(lo, hi, h int) {
	g := &p.g
	for i := lo; i < hi; i += h {
		w, dst := min(h, hi-i), p.a[(i-lo)*p.k:]
		if g.TransA {
			p.packRows(dst, w, g.A[p.k0*g.LDA+i:], g.LDA, w, p.k)
		} else {
			p.packTransposed(dst, w, g.A[i*g.LDA+p.k0:], g.LDA, w, p.k)
		}
	}
}

// panelB returns columns [j, j+n) of the current block of op(B) and the
// elements between its rows, packed into slot with pack unless it was already.
func (p *gemmPass[T]) panelB(slot []T, j, n int, pack bool) (b []T, bs int) {
	g := &p.g
	if !g.TransB && n == p.cols && p.i1-p.i0 <= p.flat {
		return g.B[p.k0*g.LDB+j:], g.LDB
	}
	bs = p.cols
	if p.narrow && n <= p.lanes {
		bs = p.lanes
	}
	switch {
	case !pack:
	case g.TransB:
		p.packTransposed(slot, bs, g.B[j*g.LDB+p.k0:], g.LDB, n, p.k)
	default:
		p.packRows(slot, bs, g.B[p.k0*g.LDB+j:], g.LDB, n, p.k)
	}
	return slot, bs
}

// packRows copies n rows of w elements from src to dst, whose rows are ss and
// ds elements apart. Vectors are copied whole. What a row writes behind its w
// elements is overwritten by the next row, or never used.
func (e *engine[T]) packRows(dst []T, ds int, src []T, ss, w, n int) {
	fast := 0
	if e.copyRows[0] != nil {
		vectors := (w + e.lanes - 1) / e.lanes
		if room := len(src) - vectors*e.lanes; room >= 0 { // read inside src only
			fast = min(n, room/ss+1)
			size := int(unsafe.Sizeof(dst[0]))
			e.copyRows[vectors-1](&dst[0], ds*size, &src[0], ss*size, fast)
		}
	}
	for r := fast; r < n; r++ {
		copy(dst[r*ds:r*ds+w], src[r*ss:r*ss+w])
	}
}

// packTransposed writes the transpose of the w x n matrix src to dst.
func (e *engine[T]) packTransposed(dst []T, ds int, src []T, ss, w, n int) {
	fast := 0
	if e.transpose != nil && n >= e.lanes {
		blocks := n / e.lanes
		fast = blocks * e.lanes
		size := int(unsafe.Sizeof(dst[0]))
		// Vectors are written whole, so from the last to the first: the
		// others overwrite what the last reaches into the next row.
		for i := (w - 1) / e.lanes * e.lanes; i >= 0; i -= e.lanes {
			e.transpose(&dst[i], ds*size, &src[i*ss], ss*size, min(e.lanes, w-i), blocks)
		}
	}
	for i := range w {
		row := src[i*ss : i*ss+n]
		for k := fast; k < n; k++ {
			dst[k*ds+i] = row[k]
		}
	}
}
