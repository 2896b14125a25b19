package data

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
)

// named is failing with a name.
type named struct{ failing }

func (named) String() string { return "ten cats" }

// An error of a batch names the dataset and the sample, at any place in the batch, on every rank, and also after a panic.
func TestErrorNamesSample(t *testing.T) {
	const bad = 13
	for _, batch := range []int{1, 4, 7, 20} {
		for _, panics := range []bool{false, true} {
			for r := range 3 {
				ds := named{failing{numbers(20), func(idx []int) error {
					if slices.Contains(idx, bad) && panics {
						panic("no cat")
					}
					if slices.Contains(idx, bad) {
						return errors.New("no cat")
					}
					return nil
				}}}
				l := NewLoader(ds, Config{Batch: batch, Shuffle: true, Sharder: rankOf{r, 3}})
				var seen []int
				for _, b := range l.Epoch(t.Context(), 0) {
					seen = append(seen, samplesOf(t, b)...)
				}
				if l.Err() != nil {
					assert.ErrorContains(t, l.Err(), "ten cats, sample 13: ")
					assert.ErrorContains(t, l.Err(), "no cat")
					continue
				}
				assert.NotContains(t, seen, bad)
				assert.NotContains(t, partOf(20, batch, r, 3), bad, "the rank that has it fails")
			}
		}
	}
}

// partOf returns the samples of a rank in the first epoch.
func partOf(n, batch, rank, ranks int) (samples []int) {
	for _, global := range naive(n, batch, true, 0, 0) {
		first, end := layout.Share(len(global), rank, ranks)
		samples = append(samples, global[first:end]...)
	}
	return samples
}

// A batch may fail although each of its samples works alone, for example if it fails only once.
func TestErrorOfNoSample(t *testing.T) {
	once := errors.New("once")
	ds := failing{numbers(20), func(idx []int) error {
		if len(idx) > 1 {
			return once
		}
		return nil
	}}
	l := NewLoader(ds, Config{Batch: 10})
	for range l.Epoch(t.Context(), 0) {
		assert.Fail(t, "yielded")
	}
	require.ErrorIs(t, l.Err(), once)
	assert.EqualError(t, l.Err(), "data: epoch 0, batch 0: data.failing, a batch of 10 samples, the first [0 1 2 3 4 5 6 7], "+
		"of which none fails alone: once")
}

// A loop that has ended does not wait for the search.
func TestSearchEndsWithLoop(t *testing.T) {
	calls := 0
	ctx, left := t.Context(), make(chan struct{})
	ds := failing{numbers(30), func(idx []int) error {
		if idx[0] < 10 {
			return nil
		}
		calls++
		<-left // the loop is over before the first call is
		return fmt.Errorf("call %d", calls)
	}}
	l := NewLoader(ds, Config{Batch: 10})
	l.perm = order(30, 0, 0)
	ascending(l.perm)
	f := l.startFeed(0, 0)
	_, err := f.take(ctx)
	require.NoError(t, err)
	close(f.stop)
	close(left)
	for range f.ready {
	}
	assert.LessOrEqual(t, calls, 1)
}

func TestDropLast(t *testing.T) {
	for _, n := range []int{5, 53, 64} {
		for _, batch := range []int{1, 3, 5} {
			want := slices.DeleteFunc(naive(n, batch, true, 9, 2), func(b []int) bool { return len(b) < batch })
			for ranks := range 4 {
				got := make([][]int, len(want))
				for r := range ranks + 1 {
					l := NewLoader(numbers(n), Config{Batch: batch, Shuffle: true, Seed: 9, DropLast: true, Sharder: rankOf{r, ranks + 1}})
					require.Equal(t, len(want), l.Steps())
					samples, parts := epochOf(t, l, 2)
					for i, b := range parts {
						require.Equal(t, batch, b.Global)
						got[i] = append(got[i], samples[i]...)
					}
					require.Equal(t, 3, l.State().Epoch, "the epoch is over")
				}
				require.Equal(t, want, got)
			}
		}
	}
}

// A state of a batch that DropLast drops is an error.
func TestDropLastState(t *testing.T) {
	l := NewLoader(numbers(20), Config{Batch: 6, DropLast: true})
	assert.ErrorContains(t, l.SetState(State{Batch: 6, Samples: 20, Step: 3}), "an epoch has 3 steps")
	require.NoError(t, l.SetState(State{Batch: 6, Samples: 20, Step: 2}))
	var got [][]int
	for _, b := range l.Epoch(t.Context(), 0) {
		got = append(got, samplesOf(t, b))
	}
	require.NoError(t, l.Err())
	assert.Equal(t, [][]int{{12, 13, 14, 15, 16, 17}}, got)
}
