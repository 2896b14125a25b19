package layout

// Share returns which of n elements a rank has: those from lo to hi-1. If n does not divide by the ranks, the first ranks have one more.
func Share(n, rank, ranks int) (lo, hi int) {
	size, more := n/ranks, n%ranks
	return rank*size + min(rank, more), (rank+1)*size + min(rank+1, more)
}

// Shares writes to counts how many of n elements each rank has, and returns counts. It has an element for each rank.
func Shares(counts []int, n int) []int {
	for rank := range counts {
		lo, hi := Share(n, rank, len(counts))
		counts[rank] = hi - lo
	}
	return counts
}
