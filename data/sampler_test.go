package data

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPermute(t *testing.T) {
	a, b := make([]int, 1000), make([]int, 1000)
	permute(a, 1, 7, 3)
	permute(b, 1, 7, 3)
	assert.Equal(t, a, b, "a function of seed and epoch")
	assert.NotEqual(t, a, order(1000, 7, 4))
	assert.NotEqual(t, a, order(1000, 8, 3))
	slices.Sort(b)
	for i, v := range b {
		assert.Equal(t, i, v)
	}
	permute(nil, 1, 1, 1)
}

// The order for a seed must not change between versions and processors.
func TestPermuteGolden(t *testing.T) {
	assert.Equal(t, []int{0, 9, 1, 7, 3, 4, 5, 2, 8, 6}, order(10, 1, 0))
}

func order(n int, seed uint64, epoch int) []int {
	perm := make([]int, n)
	permute(perm, 1, seed, epoch)
	return perm
}

// All 24 orders of 4 samples are equally frequent: chi-square with 23 degrees of freedom, 0.1% quantile 49.7.
func TestPermuteUniform(t *testing.T) {
	const epochs = 24_000
	count := map[[4]int]int{}
	for e := range epochs {
		count[[4]int(order(4, 5, e))]++
	}
	chi := 0.0
	for _, n := range count {
		d := float64(n) - epochs/24
		chi += d * d / (epochs / 24)
	}
	assert.Len(t, count, 24)
	assert.Less(t, chi, 49.7)
}
