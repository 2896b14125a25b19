package kernel

// CheckIndex returns the position of the first element of idx outside 0..n, or -1.
// The kernels below need checked indices: a wrong one would read or write another
// row.
func CheckIndex(idx []int64, n int) int {
	for i, v := range idx {
		if v < 0 || v >= int64(n) {
			return i
		}
	}
	return -1
}

// GatherRows copies, for r in lo..hi, row idx[r] of table to row r of dst (an embedding). Rows have cols elements.
func GatherRows[T any](dst, table []T, idx []int64, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		copy(row(dst, r, cols), row(table, int(idx[r]), cols))
	}
}

// ScatterAddRows adds, for each r in order, columns lo..hi of row r of src to row
// idx[r] of dst: the gradient of [GatherRows]. Work is cut by columns, so the order
// of additions does not depend on the cut.
func ScatterAddRows[T Number](dst, src []T, idx []int64, cols, lo, hi int) {
	const ahead = 2 // the rows of dst are in no order, so the processor cannot prefetch them itself
	for r, to := range idx {
		next := min(r+ahead, len(idx)-1)
		addRow(row(dst, int(to), cols)[lo:hi], row(src, r, cols)[lo:hi], row(dst, int(idx[next]), cols)[lo:hi], row(src, next, cols)[lo:hi])
	}
}

// addRow computes dst += x. It prefetches nextDst and nextX, rows of the same
// length that are needed soon.
func addRow[T Number](dst, x, nextDst, nextX []T) {
	k := vecAddRow(dst, x, nextDst, nextX)
	dst = dst[k:]
	for i, v := range x[k:][:len(dst)] {
		dst[i] += v
	}
}

// GatherDim computes dst[o,j,i] = x[o, idx[o,j,i], i] for o in lo..hi, where x is [outer, n, inner] and dst and idx are
// [outer, m, inner]: torch.gather along the middle dimension.
func GatherDim[T any](dst, x []T, idx []int64, n, m, inner, lo, hi int) {
	for o := lo; o < hi; o++ {
		x := x[o*n*inner : (o+1)*n*inner]
		for j := o * m; j < (o+1)*m; j++ {
			d, p := row(dst, j, inner), row(idx, j, inner)
			for i := range d {
				d[i] = x[int(p[i])*inner+i]
			}
		}
	}
}

// ScatterAddDim computes dst[o, idx[o,j,i], i] += src[o,j,i] for o in lo..hi with j ascending, where dst is [outer, n, inner] and
// src and idx are [outer, m, inner]: torch.scatter_add along the middle dimension, and the gradient of [GatherDim].
func ScatterAddDim[T Number](dst, src []T, idx []int64, n, m, inner, lo, hi int) {
	for o := lo; o < hi; o++ {
		dst := dst[o*n*inner : (o+1)*n*inner]
		for j := o * m; j < (o+1)*m; j++ {
			s, p := row(src, j, inner), row(idx, j, inner)
			for i := range s {
				dst[int(p[i])*inner+i] += s[i]
			}
		}
	}
}
