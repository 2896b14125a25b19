//go:build !race

package algo_test

// big is a number of elements that takes several chunks.
func big(count int) int { return count }
