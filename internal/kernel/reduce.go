package kernel

// The reductions view x as [outer, n, inner] and reduce the middle dimension. Output o*inner+i reduces
// x[o, :, i]; a call computes outputs lo..hi into dst[lo:hi]. The order of operations for one output never
// depends on lo and hi.

const (
	sumBlock = 128 // rows that are added up before pairwise summation starts
	sumTile  = 512 // columns that are summed side by side
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
	var s8 [8]T
	x = x[vecSumEight(x, &s8):]
	a, b, c, d, e, f, g, h := s8[0], s8[1], s8[2], s8[3], s8[4], s8[5], s8[6], s8[7]
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
func addTo[T Number](dst, x []T) { sumOf(dst, dst, x) }

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

// The float64 sums over a row have eight accumulators: element i goes to number i%8. They are added up as total does.

func total(s *[8]float64) float64 {
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
}

// SumSquares returns the sum of x*x in float64 (eight interleaved accumulators). The result depends on where the caller
// cuts x.
func SumSquares[T Float](x []T) float64 { return sumSquaresAround(x, 0) }

// sumSquaresAround adds up (x-m)**2 in float64.
func sumSquaresAround[T Float](x []T, m float64) float64 {
	var s [8]float64
	x = x[vecSquares(x, &s, m):]
	a, b, c, d, e, f, g, h := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	for ; len(x) >= 8; x = x[8:] {
		a += square(float64(x[0]) - m)
		b += square(float64(x[1]) - m)
		c += square(float64(x[2]) - m)
		d += square(float64(x[3]) - m)
		e += square(float64(x[4]) - m)
		f += square(float64(x[5]) - m)
		g += square(float64(x[6]) - m)
		h += square(float64(x[7]) - m)
	}
	s = [8]float64{a, b, c, d, e, f, g, h}
	for i, v := range x {
		s[i] += square(float64(v) - m)
	}
	return total(&s)
}

func square(x float64) float64 { return float64(x * x) }

// rowSum adds up x in float64.
func rowSum[T Float](x []T) float64 {
	var s [8]float64
	x = x[vecSumWide(x, &s):]
	a, b, c, d, e, f, g, h := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	for ; len(x) >= 8; x = x[8:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
		e += float64(x[4])
		f += float64(x[5])
		g += float64(x[6])
		h += float64(x[7])
	}
	s = [8]float64{a, b, c, d, e, f, g, h}
	for i, v := range x {
		s[i] += float64(v)
	}
	return total(&s)
}

// dot returns the inner product of a and b in float64.
func dot[T Float](a, b []T) float64 {
	var s [8]float64
	k := vecDot(a, b, &s)
	a = a[k:]
	b = b[k:][:len(a)]
	for i, v := range a {
		s[i&7] += float64(float64(v) * float64(b[i]))
	}
	return total(&s)
}
