package data_test

import (
	"context"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// drawn returns the samples of an epoch, in order, of all ranks together, from a step on.
func drawn(t *testing.T, weights []float64, ranks, epoch, from int) (all []int) {
	t.Helper()
	parts := map[int][]int{}
	for r := range ranks {
		l := data.NewLoader(numbered{n: len(weights)}, data.Config{Batch: 10, Weights: weights, Seed: 7, Sharder: rank{r, ranks}})
		s := l.State()
		s.Epoch, s.Step = epoch, from
		require.NoError(t, l.SetState(s))
		for i, b := range l.Epoch(t.Context(), epoch) {
			for row, k := range b.Samples[b.First : b.First+b.Rows] {
				assert.Equal(t, float64(k), tensor.Floats(b.X)[2*row])
				parts[i] = append(parts[i], k)
			}
		}
		require.NoError(t, l.Err())
	}
	for i := from; i < len(parts)+from; i++ {
		all = append(all, parts[i]...)
	}
	return all
}

// Samples are drawn in proportion to their weights: chi-square with 3 degrees of freedom, 0.1% quantile 16.3.
func TestWeights(t *testing.T) {
	weights := make([]float64, 40_003)
	classes := []float64{0.5, 0, 2, 1.5, 1}
	for i := range weights {
		weights[i] = classes[i%5]
	}
	got := [5]float64{}
	seen := map[int]int{}
	all := drawn(t, weights, 1, 2, 0)
	require.Len(t, all, len(weights))
	for _, i := range all {
		got[i%5]++
		seen[i]++
	}
	assert.Zero(t, got[1])
	chi := 0.0
	for c, w := range classes {
		if want := w / 5 * float64(len(weights)); want > 0 {
			chi += (got[c] - want) * (got[c] - want) / want
		}
	}
	assert.Less(t, chi, 16.3)
	twice := 0
	for _, n := range seen {
		twice = max(twice, n)
	}
	assert.Greater(t, twice, 2)
}

// Ranks together draw what one rank draws, each epoch other samples, and go on in the middle of an epoch.
func TestWeightsOnRanks(t *testing.T) {
	weights := make([]float64, 43)
	for i := range weights {
		weights[i] = float64(i % 4)
	}
	want := drawn(t, weights, 1, 1, 0)
	for _, ranks := range []int{2, 3} {
		assert.Equal(t, want, drawn(t, weights, ranks, 1, 0))
		assert.Equal(t, want[20:], drawn(t, weights, ranks, 1, 2))
	}
	assert.NotEqual(t, want, drawn(t, weights, 1, 2, 0))
}

func TestBalance(t *testing.T) {
	labels, err := data.Labels(numbered{n: 12})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2, 2, 2, 0, 1, 2, 2, 2, 0, 1}, labels)
	sums := [3]float64{}
	for i, w := range data.Balance(labels) {
		sums[labels[i]] += w
	}
	assert.InDeltaSlice(t, []float64{1, 1, 1}, sums[:], 1e-12)
}

func TestBadWeights(t *testing.T) {
	const alone = "says which samples are drawn, one by one: leave out Shuffle and Group"
	for _, c := range []struct {
		want string
		cfg  data.Config
	}{
		{"has 2 numbers, the dataset 3 samples", data.Config{Weights: []float64{1, 2}}},
		{"has 0 numbers, the dataset 3 samples", data.Config{Weights: []float64{}}},
		{"[1] is -1: want 0 or more", data.Config{Weights: []float64{1, -1, 1}}},
		{"[0] is NaN: want 0 or more", data.Config{Weights: []float64{math.NaN(), 1, 1}}},
		{"[2] is +Inf: want 0 or more", data.Config{Weights: []float64{1, 1, math.Inf(1)}}},
		{"sum to 0: want a positive number", data.Config{Weights: []float64{0, 0, 0}}},
		{"sum to +Inf: want a positive number", data.Config{Weights: []float64{1e308, 1e308, 0}}},
		{alone, data.Config{Weights: []float64{1, 1, 1}, Shuffle: true}},
		{alone, data.Config{Weights: []float64{1, 1, 1}, Group: 3}},
	} {
		c.cfg.Batch = 3
		err := tensor.Try(func() { data.NewLoader(numbered{n: 3}, c.cfg) })
		require.ErrorContains(t, err, "data: Config.Weights")
		assert.ErrorContains(t, err, c.want)
	}
	with := data.NewLoader(numbered{n: 3}, data.Config{Batch: 3, Weights: []float64{1, 2, 3}})
	without := data.NewLoader(numbered{n: 3}, data.Config{Batch: 3})
	require.EqualError(t, without.SetState(with.State()), "data: the state is of a Loader with other Weights, or has none")
}

// Ranks that draw by other weights would see other samples: an error on all of them.
func TestRanksHaveTheSameWeights(t *testing.T) {
	err := dist.Run(t.Context(), dist.Config{Ranks: 3, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		weights := []float64{1, 2, 3, 4}
		weights[0] += float64(r.World.Rank() / 2)
		l := data.NewLoader(numbered{n: 4}, data.Config{Batch: 4, Weights: weights, Sharder: r.World})
		for range l.Epoch(ctx, 0) {
		}
		return l.Err()
	})
	require.ErrorContains(t, err, "Weights of checksum ")
}
