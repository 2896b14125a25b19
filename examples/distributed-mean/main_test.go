package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

func Example() {
	if err := run(dist.Config{Ranks: 4, Log: os.Stdout}, 1000); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1000 numbers on 4 ranks, 100 of them on rank 0
	// mean 499.5000, standard deviation 288.6750
	// the mean of the ranks' means would be 374.5000
}

// The result does not depend on the number of ranks; ranks without numbers take part.
func TestRanks(t *testing.T) {
	disttest.AnyRanks(t, []int{1, 2, 7, 1000}, run)
	require.ErrorContains(t, run(dist.Config{Ranks: 2, Log: io.Discard}, 0), "-n 0")
}

func TestCheck(t *testing.T) {
	std := math.Sqrt(99.0 / 12)
	assert.NoError(t, check(4.5, std, 10))
	assert.Error(t, check(4.5001, std, 10))
	assert.Error(t, check(4.5, std+1e-4, 10))
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, func(cfg dist.Config) error { return run(cfg, 100) })
}
