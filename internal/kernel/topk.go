package kernel

// TopK computes, for rows lo to hi of n elements, idx[r*k:][:k] = the positions of the k largest, largest first. Of equal
// elements the first comes first; NaN is larger than all numbers.
func TopK[T Number](idx []int64, x []T, n, k, lo, hi int) {
	if k == 0 {
		return
	}
	for r := lo; r < hi; r++ {
		row, best := x[r*n:][:n], idx[r*k:][:0:k]
		for i, v := range row {
			if len(best) == k {
				if !larger(v, row[best[k-1]]) {
					continue
				}
				best = best[:k-1]
			}
			at := len(best)
			best = append(best, int64(i))
			for ; at > 0 && larger(v, row[best[at-1]]); at-- {
				best[at] = best[at-1]
			}
			best[at] = int64(i)
		}
	}
}

// larger reports whether v comes before w in TopK, wherever they are.
func larger[T Number](v, w T) bool { return v > w || v != v && w == w }
