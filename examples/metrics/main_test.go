package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

func Example() {
	if err := run(dist.Config{Ranks: 4, Log: os.Stdout}, 50); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 50 rows on 4 ranks, 13 each
	// mean squared error 0.004877
	// predictions of the last rows [-1.264 -0.264 2.021]
}

// The metrics do not depend on the number of ranks, also with padding.
func TestRanks(t *testing.T) {
	disttest.AnyRanks(t, []int{1, 2, 7, 50}, run)
	require.ErrorContains(t, run(dist.Config{Ranks: 2}, 0), "-rows 0")
}

func TestCheck(t *testing.T) {
	whole := dataset(10, 4)
	predictions, loss := evaluate(whole)
	assert.Equal(t, 10.0, loss[1], "rows that fill up do not count")
	assert.Len(t, predictions, 12)
	assert.NoError(t, check(whole, loss, predictions))
	assert.Error(t, check(whole, []float64{loss[0] * 1.001, 10}, predictions))
	assert.Error(t, check(whole, []float64{loss[0], 12}, predictions))
	predictions[7]++
	assert.Error(t, check(whole, loss, predictions))
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, func(cfg dist.Config) error { return run(cfg, 50) })
}
