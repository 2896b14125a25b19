//go:build race

package algo_test

// big is a number of elements that takes several chunks. In the short form it is smaller here: with the race detector, copies are slow,
// and TestLongReductions has such sizes.
func big(count int) int {
	if long() {
		return count
	}
	return 5_003
}
