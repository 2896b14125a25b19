package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

// testdata/four.txt has the output with four ranks.
func TestFourRanks(t *testing.T) {
	var got bytes.Buffer
	require.NoError(t, run(dist.Config{Ranks: 4, Log: &got}))
	want, err := os.ReadFile("testdata/four.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String())
}

func TestAnyNumberOfRanks(t *testing.T) {
	for n := 1; n <= 9; n++ {
		assert.NoError(t, run(dist.Config{Ranks: n, Log: io.Discard}), "%d ranks", n)
	}
}

// A collective with a wrong result is an error.
func TestWrongResult(t *testing.T) {
	for i, d := range append(demos(), unequal()...) {
		err := dist.Run(context.Background(), dist.Config{Ranks: 3, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			after := d.after.at
			d := d
			d.after.at = func(r, n, i int) int { return after(r, n, i) + max(0, 1-r) } // on rank 0
			return d.show(r)
		})
		assert.ErrorContains(t, err, fmt.Sprintf("rank 0: %s gave ", d.name), "%d", i)
	}
}

func Example() {
	for _, d := range demos() {
		fmt.Println(d.name+":", d.does)
	}
	// Output:
	// Broadcast: the root's values, on all
	// Reduce: the sum, on the root alone
	// AllReduce: the sum, on all
	// Gather: everyone's part, on the root
	// AllGather: everyone's part, on all
	// Scatter: part r of the root's values, on rank r
	// ReduceScatter: part r of the sum, on rank r
	// AllToAll: part r of everyone's values, on rank r
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, run)
}
