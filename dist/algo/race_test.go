//go:build race

package algo_test

// big is a number of elements that takes several chunks. It is smaller here: with the race detector, copies are slow, and
// TestLargeReductions has such sizes.
func big(int) int { return 5_003 }
