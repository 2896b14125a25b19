//go:build race

package algo_test

// big is a number of elements that takes several chunks; not here, where the race detector looks at each byte of each copy
// and TestLongReductions alone has that many.
func big(int) int { return 5_003 }
