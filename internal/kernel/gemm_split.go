package kernel

// partUnit is the granularity of GemmPart: a whole number of vectors for every
// instruction set, so that parts do not waste lanes.
const partUnit = 16

// packCost is the time to pack one element of A or B, in multiply-adds.
const packCost = 16

// GemmSplit says into how many blocks of rows and of columns an m x n x k product
// is cut for a pool of so many threads: rows*cols <= threads. It depends only on
// its arguments and the instruction set. Small products are not cut.
func GemmSplit(m, n, k, threads int) (rows, cols int) {
	// With less work than a grain, a thread costs more to wake than it saves.
	threads = min(threads, int(float64(m)*float64(n)*float64(k)/active.grain))
	rows, cols = 1, 1
	if threads <= 1 {
		return rows, cols
	}
	best := partCost(m, n, 1, 1)
	for r := 1; r <= min(threads, units(m)); r++ {
		c := min(threads/r, units(n))
		if cost := partCost(m, n, r, c); cost < best {
			rows, cols, best = r, c, cost
		}
	}
	return rows, cols
}

// partCost is the time for the largest block of a rows x cols cut, per k.
func partCost(m, n, rows, cols int) int {
	h, w := largestPart(m, rows), largestPart(n, cols)
	return h*w + packCost*(h+w)
}

func largestPart(n, parts int) int {
	return min(n, (units(n)+parts-1)/parts*partUnit)
}

func units(n int) int { return (n + partUnit - 1) / partUnit }

// GemmPart is the range [lo, hi) of part i, if n rows (or columns) of C are cut
// into parts of about equal size, aligned for the micro-kernels.
func GemmPart(n, parts, i int) (lo, hi int) {
	if parts == 1 {
		return 0, n
	}
	u := units(n)
	return min(n, u*i/parts*partUnit), min(n, u*(i+1)/parts*partUnit)
}
