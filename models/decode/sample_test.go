package decode

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kept returns which tokens may be drawn and how often, by the definition.
func kept(logits []float64, s Sampling) []float64 {
	p, order := make([]float64, len(logits)), make([]int, len(logits))
	total := 0.0
	for i, v := range logits {
		p[i], order[i] = math.Exp(v/s.Temperature), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return likelier(choice{a, p[a]}, choice{b, p[b]}) })
	if s.TopK > 0 {
		order = order[:min(s.TopK, len(order))]
	}
	for _, i := range order {
		total += p[i]
	}
	out, so := make([]float64, len(logits)), 0.0
	for _, i := range order {
		if s.TopP > 0 && so >= s.TopP*total {
			break
		}
		so += p[i]
		out[i] = p[i]
	}
	for i := range out {
		out[i] /= so
	}
	return out
}

// Tokens are drawn with their probabilities, and never those that TopK and TopP exclude.
func TestDraw(t *testing.T) {
	logits := []float64{0, 1.5, -2, 1.5, 0.3, -math.MaxFloat64, 2.2, -1, 0.9}
	const draws = 40_000
	for _, s := range []Sampling{
		{Temperature: 1}, {Temperature: 0.3}, {Temperature: 4, Seed: 3}, {Temperature: 1, TopK: 1}, {Temperature: 1, TopK: 2},
		{Temperature: 1, TopK: 5}, {Temperature: 1, TopK: 100}, {Temperature: 1, TopP: 0.5}, {Temperature: 2, TopP: 0.9},
		{Temperature: 1, TopK: 4, TopP: 0.7}, {Temperature: 1, TopP: 1},
	} {
		d, counts, want := sampler{Sampling: s}, make([]float64, len(logits)), kept(logits, s)
		for n := range draws {
			counts[d.draw(logits, n)]++
		}
		for i, w := range want {
			require.False(t, w == 0 && counts[i] > 0 || w > 1e-3 && counts[i] == 0, "%+v: token %d", s, i)
			assert.InDelta(t, w, counts[i]/draws, 5*math.Sqrt(w*(1-w)/draws)+1e-12, "%+v: token %d", s, i)
		}
	}
}

func TestDrawAllocatesNothing(t *testing.T) {
	logits := make([]float64, 1000)
	for i := range logits {
		logits[i] = float64(i * i % 37)
	}
	s, n := sampler{Sampling: Sampling{Temperature: 1, TopK: 50, TopP: 0.9}}, 0
	assert.Zero(t, testing.AllocsPerRun(20, func() { s.draw(logits, n); n++ }))
}

func TestLargest(t *testing.T) {
	inf := math.Inf(1)
	require.Equal(t, 3.0, largest([]float64{-inf, 3, 2}))
	require.Equal(t, -inf, largest([]float64{-inf, -inf}))
	require.Equal(t, inf, largest([]float64{1, inf}))
	for i := range 3 {
		logits := []float64{1, -inf, 2}
		logits[i] = math.NaN()
		require.True(t, math.IsNaN(largest(logits)))
	}
}
