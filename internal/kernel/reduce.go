package kernel

// The reductions view x as [outer, n, inner] and reduce the middle dimension. Output o*inner+i reduces
// x[o, :, i]; a call computes outputs lo..hi into dst[lo:hi]. The order of operations for one output never
// depends on lo and hi.

const (
	sumBlock = 128 // rows that are added up before pairwise summation starts
	sumTile  = 64  // columns that are summed side by side
)

// ReduceSum computes dst[j] = sum of the n elements of output j; 0 for n = 0.
//
// Sums are pairwise: the n elements are cut into blocks of 128, and blocks are added as a balanced binary tree, so the
// rounding error grows with log n. A block is added in eight interleaved accumulators if inner is 1, row by row otherwise.
func ReduceSum[T Number](dst, x []T, n, inner, lo, hi int) {
	if inner == 1 {
		for j := lo; j < hi; j++ {
			dst[j] = sum(x[j*n : (j+1)*n])
		}
		return
	}
	if n == 0 {
		clear(dst[lo:hi])
		return
	}
	for lo < hi {
		o, i := lo/inner, lo%inner
		w := min(sumTile, inner-i, hi-lo)
		sumRows(dst[lo:lo+w], x[o*n*inner+i:], n, inner)
		lo += w
	}
}

// ColSum computes dst[j] = the sum over rows of x[r*ld+j] for columns j in lo..hi, added to dst[j] if acc. The order is
// pairwise as in [ReduceSum].
func ColSum[T Float](dst, x []T, rows, cols, ld int, lo, hi int, acc bool) {
	dst = dst[:cols]
	if !acc {
		clear(dst[lo:hi])
	}
	if rows == 0 {
		return
	}
	var t [sumTile]T
	for lo < hi {
		w := min(sumTile, hi-lo)
		sumRows(t[:w], x[lo:], rows, ld)
		addTo(dst[lo:lo+w], t[:w])
		lo += w
	}
}

// sum adds up x: pairwise over blocks.
func sum[T Number](x []T) T {
	if len(x) <= sumBlock {
		return blockSum(x)
	}
	h := half(len(x))
	return sum(x[:h]) + sum(x[h:])
}

// half returns where a sum of n > sumBlock elements is cut in two: a multiple of sumBlock.
func half(n int) int {
	blocks := (n + sumBlock - 1) / sumBlock
	return blocks / 2 * sumBlock
}

// blockSum adds up x in eight accumulators.
func blockSum[T Number](x []T) T {
	var a, b, c, d, e, f, g, h T
	for ; len(x) >= 8; x = x[8:] {
		a += x[0]
		b += x[1]
		c += x[2]
		d += x[3]
		e += x[4]
		f += x[5]
		g += x[6]
		h += x[7]
	}
	s := ((a + b) + (c + d)) + ((e + f) + (g + h))
	for _, v := range x {
		s += v
	}
	return s
}

// sumRows computes dst = the sum of n rows of len(dst) <= sumTile columns, ld elements apart: pairwise over blocks of rows.
func sumRows[T Number](dst, x []T, n, ld int) {
	if n > sumBlock {
		h := half(n)
		var t [sumTile]T
		sumRows(dst, x, h, ld)
		sumRows(t[:len(dst)], x[h*ld:], n-h, ld)
		addTo(dst, t[:len(dst)])
		return
	}
	clear(dst)
	for r := range n {
		addTo(dst, x[r*ld:])
	}
}

// addTo computes dst += x.
func addTo[T Number](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += x[i]
	}
}

// ReduceProd computes dst[j] = product of the n elements of output j, in order; 1 for n = 0.
func ReduceProd[T Number](dst, x []T, n, inner, lo, hi int) {
	Fill(dst[lo:hi], 1)
	if inner == 1 {
		for j := lo; j < hi; j++ {
			p := T(1)
			for _, v := range x[j*n : (j+1)*n] {
				p *= v
			}
			dst[j] = p
		}
		return
	}
	for lo < hi {
		o, i := lo/inner, lo%inner
		w := min(inner-i, hi-lo)
		d := dst[lo : lo+w]
		for r := range n {
			row := x[(o*n+r)*inner+i:][:w]
			for k := range d {
				d[k] *= row[k]
			}
		}
		lo += w
	}
}

// SumSquares returns the sum of x*x in float64 (four accumulators). The result depends on where the caller
// cuts x.
func SumSquares[T Float](x []T) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(float64(x[0]) * float64(x[0]))
		b += float64(float64(x[1]) * float64(x[1]))
		c += float64(float64(x[2]) * float64(x[2]))
		d += float64(float64(x[3]) * float64(x[3]))
	}
	for _, v := range x {
		a += float64(float64(v) * float64(v))
	}
	return (a + b) + (c + d)
}
