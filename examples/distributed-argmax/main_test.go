package main

import (
	"context"
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
	if err := run(dist.Config{Ranks: 4, Log: os.Stdout}, 1000, 42); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the largest of 4000 numbers on 4 ranks is 499: number 745, on rank 0
}

func TestRanks(t *testing.T) {
	disttest.AnyRanks(t, []int{1, 3, 1000}, func(cfg dist.Config, each int) error { return run(cfg, each, uint64(cfg.Ranks)) })
	require.ErrorContains(t, run(dist.Config{Ranks: 2, Log: io.Discard}, 0, 1), "no numbers")
}

// Of equal values the first is taken, on whichever rank it is. A maximum of minus infinity has a place, too.
func TestTies(t *testing.T) {
	low := float32(math.Inf(-1))
	for _, c := range []struct {
		x     [3][2]float32
		value float32
		place int
	}{
		{[3][2]float32{{1, 2}, {2, 5}, {5, 5}}, 5, 3},
		{[3][2]float32{{7, 7}, {7, 7}, {7, 7}}, 7, 0},
		{[3][2]float32{{low, -3}, {-4, -5}, {-6, -2}}, -2, 5},
		{[3][2]float32{{low, low}, {low, low}, {low, low}}, low, 0},
	} {
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 3}, func(_ context.Context, r *dist.Rank) error {
			value, place, err := argmax(r.World, c.x[r.World.Rank()][:])
			assert.Equal(t, c.value, value)
			assert.Equal(t, c.place, place)
			return err
		}))
	}
}

func TestCheck(t *testing.T) {
	assert.Error(t, check(42, 4, 1000, 499, 746), "a later place")
	assert.Error(t, check(42, 4, 1000, 498, 745))
	assert.NoError(t, check(42, 4, 1000, 499, 745))
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, func(cfg dist.Config) error { return run(cfg, 100, 1) })
}
