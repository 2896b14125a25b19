//go:build race

package algo_test

// big is a number of elements that takes several chunks; not in the short form here, where the race detector looks at each byte
// of each copy and TestLongReductions alone has that many.
func big(count int) int {
	if long() {
		return count
	}
	return 5_003
}
