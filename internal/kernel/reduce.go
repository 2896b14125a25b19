package kernel

// The reductions view x as [outer, n, inner] and reduce the middle dimension. Output o*inner+i reduces
// x[o, :, i]; a call computes outputs lo..hi into dst[lo:hi]. The order of operations for one output never
// depends on lo and hi.

const (
	sumBlock = 256 // elements that are added before pairwise summation starts
	rowBlock = 128 // the same for rows
	sumTile  = 512 // columns that are summed side by side

	rowsAhead = 4 // how many rows ahead they are prefetched, in kernels for a block of rows
)

// ReduceSum computes dst[j] = sum of the n elements of output j; 0 for n = 0.
//
// Sums are pairwise: the n elements are cut into blocks, and the blocks' sums are
// added as a balanced binary tree. So the rounding error grows with log n. If inner
// is 1, a block has 256 elements, added in 16 interleaved accumulators; otherwise
// it has 128, added row by row.
func ReduceSum[T Number](dst, x []T, n, inner, lo, hi int) {
	if n == 0 {
		clear(dst[lo:hi])
		return
	}
	if inner == 1 {
		sums(dst[lo:hi], x[lo*n:hi*n], n)
		return
	}
	for lo < hi {
		o, i := lo/inner, lo%inner
		w := min(sumTile, inner-i, hi-lo)
		sumRows(dst[lo:lo+w], x[o*n*inner+i:], n, inner)
		lo += w
	}
}

// ColSum computes dst[j] = the sum over rows of x[r*ld+j] for columns j in lo..hi;
// if acc is set, it is added to dst[j]. The order is pairwise as in [ReduceSum].
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

// ColSumBF16 is [ColSum] in float32, rounded once: it has the bits of ColSum between
// conversions of all of dst and x.
func ColSumBF16(dst, x []BF16, rows, cols, ld int, lo, hi int, acc bool) {
	dst = dst[:cols]
	var sums, old [sumTile]float32
	for ; lo < hi; lo += sumTile {
		w := min(sumTile, hi-lo)
		clear(sums[:w])
		if rows > 0 {
			sumRowsBF16(sums[:w], x[lo:], rows, ld)
		}
		clear(old[:w])
		if acc {
			BF16ToF32(old[:w], dst[lo:lo+w])
		}
		addTo(old[:w], sums[:w])
		F32ToBF16(dst[lo:lo+w], old[:w])
	}
}

// sumRowsBF16 is sumRows of rows that are widened.
func sumRowsBF16(dst []float32, x []BF16, n, ld int) {
	var t [sumTile]float32
	wide := t[:len(dst)]
	if n > rowBlock {
		h := half(n, rowBlock)
		sumRowsBF16(dst, x, h, ld)
		sumRowsBF16(wide, x[h*ld:], n-h, ld)
		addTo(dst, wide)
		return
	}
	clear(dst)
	row := func(r int) []BF16 { return x[r*ld:][:len(dst)] }
	r := 0
	for ; r+4 <= n; r += 4 {
		done := vecAddRowsBF16(dst, row(r), row(r+1), row(r+2), row(r+3))
		for i := done; i < len(dst); i++ {
			dst[i] = dst[i] + x[r*ld+i].Float32() + x[(r+1)*ld+i].Float32() + x[(r+2)*ld+i].Float32() + x[(r+3)*ld+i].Float32()
		}
	}
	for ; r < n; r++ {
		BF16ToF32(wide, row(r))
		addRow(dst, wide, dst, wide)
	}
}

// manyBlocks is the number of blocks that one call sums.
const manyBlocks = 16

// sums sums each n > 0 elements of x. It does a few blocks together.
func sums[T Number](dst, x []T, n int) {
	var blocks [manyBlocks]T
	block := min(n, sumBlock)
	if n > manyBlocks*block || n%block != 0 {
		for j := range dst {
			dst[j] = sum(x[j*n:(j+1)*n], &blocks)
		}
		return
	}
	each := n / block
	for len(dst) > 0 {
		k := min(len(dst), manyBlocks/each)
		blockSums(blocks[:k*each], x[:k*n], block)
		for j := range dst[:k] {
			dst[j] = pairwise(blocks[j*each:][:each])
		}
		dst, x = dst[k:], x[k*n:]
	}
}

// sum returns the sum of x: pairwise over blocks.
func sum[T Number](x []T, blocks *[manyBlocks]T) T {
	if n := (len(x) + sumBlock - 1) / sumBlock; n <= manyBlocks {
		blockSums(blocks[:n], x, sumBlock)
		return pairwise(blocks[:n])
	}
	h := half(len(x), sumBlock)
	return sum(x[:h], blocks) + sum(x[h:], blocks)
}

// half returns where a sum of n > block elements is cut in two: at a multiple of
// block.
func half(n, block int) int { return (n + block - 1) / block / 2 * block }

// pairwise sums the blocks' sums as a balanced binary tree.
func pairwise[T Number](s []T) T {
	if len(s) == 1 {
		return s[0]
	}
	return pairwise(s[:len(s)/2]) + pairwise(s[len(s)/2:])
}

// blockSums sums each block of x in 16 accumulators; the last block may be shorter.
func blockSums[T Number](dst, x []T, block int) {
	var acc [manyBlocks][16]T
	whole := len(x) / block
	k := vecSum(x[:whole*block], acc[:whole], block)
	for b := range dst {
		x, s := x[b*block:min((b+1)*block, len(x))], &acc[b]
		if b < whole {
			x = x[k:]
		} else {
			x = x[vecSum(x, acc[b:b+1], len(x)):]
		}
		for i, v := range x {
			s[i&15] += v
		}
		dst[b] = total(s)
	}
}

// sumRows computes dst = the sum of n rows of len(dst) <= sumTile columns, ld elements apart: pairwise over blocks of rows.
func sumRows[T Number](dst, x []T, n, ld int) {
	if n > rowBlock {
		h := half(n, rowBlock)
		var t [sumTile]T
		sumRows(dst, x, h, ld)
		sumRows(t[:len(dst)], x[h*ld:], n-h, ld)
		addTo(dst, t[:len(dst)])
		return
	}
	clear(dst)
	for r := range n {
		addRow(dst, x[r*ld:], dst, x[min(r+rowsAhead, n-1)*ld:])
	}
}

// addTo computes dst += x.
func addTo[T Number](dst, x []T) { sumOf(dst, dst, x) }

// Sums over a row have 16 accumulators: element i is added to number i%16. total
// adds these up.

func total[T Number](s *[16]T) T {
	return (((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) +
		(((s[8] + s[9]) + (s[10] + s[11])) + ((s[12] + s[13]) + (s[14] + s[15])))
}

// SumSquares returns the sum of x*x in float64 (16 interleaved accumulators). The
// result depends on where the caller cuts x.
func SumSquares[T Float](x []T) float64 {
	var s lanes
	for i, v := range x[vecSquares(x, &s):] {
		s[i&15] += square(float64(v))
	}
	return total(&s)
}

func square(x float64) float64 { return float64(x * x) }
