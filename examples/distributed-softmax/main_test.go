package main

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

func Example() {
	if err := run(dist.Config{Ranks: 4, Log: os.Stdout}, 10); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 10 logits on 4 ranks
	// softmax [0.0164 0.2047 0.2509 0.0250 0.0017 0.0009 0.0071 0.1177 0.3190 0.0565]
}

// The result does not depend on the number of ranks; ranks without elements take part.
func TestRanks(t *testing.T) {
	disttest.AnyRanks(t, []int{0, 1, 5, 100}, run)
}

func TestCheck(t *testing.T) {
	assert.NoError(t, check([]float64{0.5, 0.5}, []float64{1000, 1000}))
	assert.Error(t, check([]float64{0.5, 0.5001}, []float64{1000, 1000}))
	assert.Error(t, check([]float64{math.NaN(), 0.5}, []float64{1000, 1000}), "what exp gives without the max")
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	disttest.SameOnCUDA(t, func(cfg dist.Config) error { return run(cfg, 10) })
}
