package kernel

import "unsafe"

// MaxDims is the largest number of dimensions of [CopyStrided] and [AddStrided].
const MaxDims = 8

// CopyStrided copies the elements src[sum(i_d*srcStride[d])] to dst[sum(i_d*dstStride[d])] for all indices
// 0 <= i_d < dims[d]: transposes, permutations, slices, concatenations and padding are such copies. Strides count elements and
// are not negative. Different indices must name different elements of dst; a source stride may be 0 (a broadcast).
// dst and src do not overlap. There are at most MaxDims dimensions.
func CopyStrided[T any](dst, src []T, dims []int, dstStride, srcStride []int) {
	size := int(unsafe.Sizeof(*new(T)))
	for _, n := range dims {
		size *= n
	}
	far := size >= farBytes && active.vectors != vecNone
	for p := plan(dims, dstStride, srcStride); p.more; p.next() {
		copyBlock(dst[p.d:], src[p.s:], p.rows, p.cols, far)
	}
	rowsDone(far)
}

// AddStrided is [CopyStrided] with dst += src in place of the copy. Each element of dst is touched once.
func AddStrided[T Number](dst, src []T, dims []int, dstStride, srcStride []int) {
	for p := plan(dims, dstStride, srcStride); p.more; p.next() {
		addBlock(dst[p.d:], src[p.s:], p.rows, p.cols)
	}
}

// axis is one dimension of a strided copy: its length and its strides in dst and src.
type axis struct{ n, d, s int }

// walk steps over the outer dimensions of a strided copy; rows x cols is the block copied at each step, from offset s to
// offset d.
type walk struct {
	outer      [MaxDims]axis
	at         [MaxDims]int
	depth      int
	rows, cols axis
	d, s       int
	more       bool
}

// plan orders and merges the dimensions. The contiguous dimension of dst becomes cols; if src is contiguous along another
// one, that becomes rows, and the block is a transpose.
func plan(dims, dstStride, srcStride []int) walk {
	ax, n := merge(dims, dstStride, srcStride)
	if n < 0 {
		return walk{}
	}
	w := walk{rows: axis{n: 1}, cols: axis{n: 1}, more: true}
	if n > 0 {
		k := n - 1
		for i := range n {
			if ax[i].d == 1 {
				k = i
			}
		}
		w.cols = ax[k]
		n = remove(&ax, k, n)
	}
	if n > 0 {
		k := n - 1
		for i := range n {
			if ax[i].s == 1 {
				k = i
			}
		}
		w.rows = ax[k]
		n = remove(&ax, k, n)
	}
	w.outer, w.depth = ax, n
	return w
}

// remove deletes the k-th of n dimensions and returns n-1.
func remove(ax *[MaxDims]axis, k, n int) int {
	copy(ax[k:n], ax[k+1:n])
	return n - 1
}

// merge drops dimensions of length 1 and joins neighbours that are one dimension in both dst and src. It returns a
// count of -1 if there is no element at all.
func merge(dims, dstStride, srcStride []int) (ax [MaxDims]axis, n int) {
	for i, size := range dims {
		a := axis{size, dstStride[i], srcStride[i]}
		switch {
		case size == 0:
			return ax, -1
		case size == 1:
		case n > 0 && ax[n-1].d == a.d*size && ax[n-1].s == a.s*size:
			a.n *= ax[n-1].n
			ax[n-1] = a
		default:
			ax[n] = a
			n++
		}
	}
	return ax, n
}

// next advances to the following outer index.
func (w *walk) next() {
	for i := w.depth - 1; i >= 0; i-- {
		a := w.outer[i]
		w.at[i]++
		w.d += a.d
		w.s += a.s
		if w.at[i] < a.n {
			return
		}
		w.d -= a.n * a.d
		w.s -= a.n * a.s
		w.at[i] = 0
	}
	w.more = false
}

// tile is the edge of the squares in which a transpose is done, so that both sides stay in the first-level cache.
const tile = 16

// copyBlock copies a two-dimensional block.
func copyBlock[T any](dst, src []T, rows, cols axis, far bool) {
	if cols.d == 1 && cols.s == 1 {
		for r := range rows.n {
			copy(dst[r*rows.d:][:cols.n], src[r*rows.s:])
		}
		return
	}
	r, c := 0, 0
	if cols.d == 1 && rows.s == 1 {
		r, c = transposeSquares(dst, src, rows, cols, far)
	}
	copyTiles(dst, src, rows, cols, 0, r, c, cols.n)
	copyTiles(dst, src, rows, cols, r, rows.n, 0, cols.n)
}

// copyTiles copies rows i0..i1 and columns j0..j1 of a block.
func copyTiles[T any](dst, src []T, rows, cols axis, i0, i1, j0, j1 int) {
	for r0 := i0; r0 < i1; r0 += tile {
		r1 := min(r0+tile, i1)
		for c0 := j0; c0 < j1; c0 += tile {
			c1 := min(c0+tile, j1)
			for r := r0; r < r1; r++ {
				for c := c0; c < c1; c++ {
					dst[r*rows.d+c*cols.d] = src[r*rows.s+c*cols.s]
				}
			}
		}
	}
}

// panel is the edge of the squares, in elements, in which transposeSquares goes through a block: whole cache lines on both
// sides, and not more rows than the processor remembers the pages of.
const panel = 32

// transposeSquares copies whole squares of vectors of a block that is a transpose, if there is assembly for it, and returns how
// many rows and columns it did: the first ones.
func transposeSquares[T any](dst, src []T, rows, cols axis, far bool) (r, c int) {
	switch unsafe.Sizeof(*new(T)) {
	case 4:
		return squaresOf(active.gemm32, dst, src, rows, cols, far)
	case 8:
		return squaresOf(active.gemm64, dst, src, rows, cols, far)
	}
	return 0, 0
}

func squaresOf[F Float, T any](e *engine[F], dst, src []T, rows, cols axis, far bool) (r, c int) {
	r, c = rows.n/e.lanes*e.lanes, cols.n/e.lanes*e.lanes
	if e.transpose == nil || r*c == 0 {
		return 0, 0
	}
	_, _ = dst[(r-1)*rows.d+c-1], src[(c-1)*cols.s+r-1]
	size := int(unsafe.Sizeof(*new(T)))
	far = far && e.transposePast != nil && uintptr(unsafe.Pointer(&dst[0]))%64 == 0 && rows.d*size%64 == 0
	for r0 := 0; r0 < r; r0 += panel {
		blocks := min(panel, r-r0) / e.lanes
		for c0 := 0; c0 < c; c0 += e.lanes {
			d, s := unsafe.Pointer(&dst[r0*rows.d+c0]), unsafe.Pointer(&src[c0*cols.s+r0])
			if far {
				e.transposePast((*F)(d), rows.d*size, (*F)(s), cols.s*size, blocks)
			} else {
				e.transpose((*F)(d), rows.d*size, (*F)(s), cols.s*size, e.lanes, blocks)
			}
		}
	}
	return r, c
}

// addBlock is copyBlock with an addition.
func addBlock[T Number](dst, src []T, rows, cols axis) {
	if cols.d == 1 && cols.s == 1 {
		for r := range rows.n {
			next := min(r+rowsAhead, rows.n-1)
			addRow(dst[r*rows.d:][:cols.n], src[r*rows.s:], dst[next*rows.d:], src[next*rows.s:])
		}
		return
	}
	for r0 := 0; r0 < rows.n; r0 += tile {
		r1 := min(r0+tile, rows.n)
		for c0 := 0; c0 < cols.n; c0 += tile {
			c1 := min(c0+tile, cols.n)
			for r := r0; r < r1; r++ {
				for c := c0; c < c1; c++ {
					dst[r*rows.d+c*cols.d] += src[r*rows.s+c*cols.s]
				}
			}
		}
	}
}
