package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

func Example() {
	if err := run(dist.Config{Ranks: 4, Log: os.Stdout}, 10); err != nil {
		fmt.Println(err)
	}
	// Output:
	// sum of 10 elements over 4 ranks: [600 604 608 612 616 620 624 628 632 636]
	// 240 bytes moved by all ranks in 6 steps each; 2(n−1)·S is 240
}

// Counts that are not a multiple of the number of ranks, or smaller, and messages of several chunks.
func TestRanks(t *testing.T) {
	disttest.AnyRanks(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1000, 100_003}, run)
}

// Each rank sends all slices except one in each of the two rounds: slice rank+1 in the first, slice rank+2 in the second.
func TestBytesOfEachRank(t *testing.T) {
	const n, count = 4, 10 // slices of 2, 3, 2 and 3 elements
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: n}, func(_ context.Context, r *dist.Rank) error {
		err := allReduce(r.World, make([]float32, count))
		slice := func(i int) int { return count*(i%n+1)/n - count*(i%n)/n }
		sent := 2*count - slice(r.World.Rank()+1) - slice(r.World.Rank()+2)
		assert.Equal(t, uint64(4*sent), r.World.Stats().Payload["send"])
		return err
	}))
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, func(cfg dist.Config) error { return run(cfg, 10) })
}
