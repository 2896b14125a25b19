package data

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// numbers is a Dataset of n samples: x is [i, -i] as float64, y is i as int32.
type numbers int

func (n numbers) Len() int { return int(n) }

func (n numbers) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Float64, Dims: []int{2}}, tensor.Shape{DType: tensor.Int32}
}

func (n numbers) Batch(idx []int, x, y tensor.Tensor) error {
	xs, ys := tensor.Data[float64](x), tensor.Data[int32](y)
	for row, i := range idx {
		xs[2*row], xs[2*row+1], ys[row] = float64(i), -float64(i), int32(i)
	}
	return nil
}

// failing is numbers whose Batch calls a function first.
type failing struct {
	numbers
	before func(idx []int) error
}

func (d failing) Batch(idx []int, x, y tensor.Tensor) error {
	if err := d.before(idx); err != nil {
		return err
	}
	return d.numbers.Batch(idx, x, y)
}

type rankOf struct{ rank, size int }

func (r rankOf) Rank() int { return r.rank }
func (r rankOf) Size() int { return r.size }

// epochOf returns the samples of each batch of an epoch, and checks each batch's shape and content.
func epochOf(t *testing.T, l *Loader, epoch int) (batches [][]int, parts []Batch) {
	t.Helper()
	next := -1
	for i, b := range l.Epoch(t.Context(), epoch) {
		require.True(t, next < 0 || next == i, "batch %d after %d", i, next-1)
		next = i + 1
		batches, parts = append(batches, samplesOf(t, b)), append(parts, b)
	}
	require.NoError(t, l.Err())
	require.Equal(t, l.Steps(), next)
	return batches, parts
}

func samplesOf(t *testing.T, b Batch) []int {
	t.Helper()
	require.Equal(t, []int{b.Rows, 2}, b.X.Shape().Dims)
	require.Equal(t, []int{b.Rows}, b.Y.Shape().Dims)
	x, samples := tensor.Data[float64](b.X), []int{}
	for row, v := range tensor.Data[int32](b.Y) {
		require.Equal(t, float64(v), x[2*row])
		require.Equal(t, -float64(v), x[2*row+1])
		samples = append(samples, int(v))
	}
	return samples
}

// naive returns the global batches of an epoch, from the definition.
func naive(n, batch int, shuffle bool, seed uint64, epoch int) (batches [][]int) {
	perm := order(n, seed, epoch)
	if !shuffle {
		slices.Sort(perm)
	}
	for b := 0; b*batch < n; b++ {
		batches = append(batches, perm[b*batch:min((b+1)*batch, n)])
	}
	return batches
}

func TestRanksTogetherSeeGlobalBatches(t *testing.T) {
	for _, n := range []int{1, 5, 53, 64} {
		for _, batch := range []int{1, 3, 8, 16, 53, 100} {
			for _, ranks := range []int{1, 2, 3, 4, 7} {
				for epoch := range 2 {
					checkRanks(t, n, batch, ranks, epoch, epoch == 1 || n == 53)
				}
			}
		}
	}
}

func checkRanks(t *testing.T, n, batch, ranks, epoch int, shuffle bool) {
	const seed = 9
	want := naive(n, batch, shuffle, seed, epoch)
	got := make([][]int, len(want))
	for r := range ranks {
		l := NewLoader(numbers(n), Config{Batch: batch, Shuffle: shuffle, Seed: seed, Sharder: rankOf{r, ranks}})
		samples, parts := epochOf(t, l, epoch)
		require.Len(t, samples, len(want), "all ranks take the same number of steps")
		for i, b := range parts {
			require.Equal(t, len(want[i]), b.Global)
			require.Equal(t, len(got[i]), b.First)
			require.Equal(t, len(samples[i]), b.Rows)
			got[i] = append(got[i], samples[i]...)
		}
	}
	require.Equal(t, want, got, "n %d, batch %d, %d ranks", n, batch, ranks)
}

// TestUnevenFirstBatch: the training's first batch is not divided as the others are, if ranks have 8 groups of rows or more.
func TestUnevenFirstBatch(t *testing.T) {
	type at struct{ batch, group, epoch, step int }
	for c, want := range map[at][]int{
		{64, 1, 0, 0}: {17, 16, 16, 15}, {64, 1, 0, 1}: {16, 16, 16, 16}, {64, 1, 1, 0}: {16, 16, 16, 16}, {67, 1, 0, 0}: {18, 17, 17, 15},
		{64, 2, 0, 0}: {18, 16, 16, 14}, {64, 4, 0, 0}: {16, 16, 16, 16}, {31, 1, 0, 0}: {8, 8, 8, 7}, {32, 1, 0, 0}: {9, 8, 8, 7},
		{256, 1, 0, 0}: {49, 48, 48, 47},
	} {
		var got []int
		for r := range want {
			l := NewLoader(numbers(192), Config{Batch: c.batch, Group: c.group, Sharder: rankOf{r, len(want)}})
			for i, b := range l.Epoch(t.Context(), c.epoch) {
				if i == c.step {
					got = append(got, b.Rows)
					break
				}
			}
		}
		assert.Equal(t, want, got, "%+v", c)
	}
}

func TestEpochsDiffer(t *testing.T) {
	l := NewLoader(numbers(20), Config{Batch: 6, Shuffle: true, Seed: 1})
	first, _ := epochOf(t, l, 0)
	second, _ := epochOf(t, l, 1)
	again, _ := epochOf(t, l, 0)
	assert.NotEqual(t, first, second)
	assert.Equal(t, first, again, "an epoch can be repeated, as for tests")
}

func TestStateResumes(t *testing.T) {
	cfg := Config{Batch: 6, Shuffle: true, Seed: 1<<63 + 1}
	for steps := range 9 { // of 4 + 4 + ...
		l := NewLoader(numbers(20), cfg)
		for epoch, left := 0, steps; left > 0; epoch++ {
			for range l.Epoch(t.Context(), epoch) {
				if left--; left == 0 {
					break
				}
			}
		}
		b, err := json.Marshal(l.State())
		require.NoError(t, err)
		var s State
		require.NoError(t, json.Unmarshal(b, &s))
		assert.Equal(t, State{Epoch: steps / 4, Step: steps % 4, Seed: cfg.Seed, Shuffle: true, Batch: 6, Samples: 20, Group: 1}, s)

		want := naive(20, 6, true, cfg.Seed, s.Epoch)[s.Step:]
		l = NewLoader(numbers(20), Config{Batch: 6, Shuffle: true, Seed: 5}) // the state's seed holds
		require.NoError(t, l.SetState(s))
		assert.Equal(t, s, l.State())
		got, _ := epochOf(t, l, s.Epoch)
		assert.Equal(t, want, got)
		got, _ = epochOf(t, l, s.Epoch)
		assert.Equal(t, naive(20, 6, true, cfg.Seed, s.Epoch), got, "later loops are whole")
	}
}

func TestStateOnOtherRanks(t *testing.T) {
	whole := NewLoader(numbers(20), Config{Batch: 6, Shuffle: true})
	for range whole.Epoch(t.Context(), 3) {
		break
	}
	want := naive(20, 6, true, 0, 3)[1:]
	got := make([][]int, len(want))
	for r := range 3 {
		l := NewLoader(numbers(20), Config{Batch: 6, Shuffle: true, Sharder: rankOf{r, 3}})
		require.NoError(t, l.SetState(whole.State()))
		samples, _ := epochOf(t, l, 3)
		for i := range got {
			got[i] = append(got[i], samples[i]...)
		}
	}
	assert.Equal(t, want, got)
}

func TestSetStateErrors(t *testing.T) {
	l := NewLoader(numbers(20), Config{Batch: 6})
	for want, s := range map[string]State{
		"of 21 samples":     {Batch: 6, Samples: 21},
		"batch 5":           {Batch: 5, Samples: 20},
		"shuffle true":      {Batch: 6, Samples: 20, Shuffle: true},
		"group 2":           {Batch: 6, Samples: 20, Group: 2},
		"epoch 0, step 4;":  {Batch: 6, Samples: 20, Step: 4},
		"epoch -1, step 0;": {Batch: 6, Samples: 20, Epoch: -1},
	} {
		assert.ErrorContains(t, l.SetState(s), want)
	}
	for range l.Epoch(t.Context(), 0) {
		assert.ErrorContains(t, l.SetState(l.State()), "within a loop")
		break
	}
	require.NoError(t, l.SetState(State{Batch: 6, Samples: 20, Epoch: 2, Step: 1}))
	for range l.Epoch(t.Context(), 0) {
		assert.Fail(t, "trains again on what it has seen")
	}
	assert.ErrorContains(t, l.Err(), "start the loop at State().Epoch")
}

func TestConfigErrors(t *testing.T) {
	for want, fn := range map[string]func(){
		"Config.Batch is 0, want 1 or more": func() { NewLoader(numbers(5), Config{}) },
		"rank 2 of 2":                       func() { NewLoader(numbers(5), Config{Batch: 1, Sharder: rankOf{2, 2}}) },
		"rank -1 of 2":                      func() { NewLoader(numbers(5), Config{Batch: 1, Sharder: rankOf{-1, 2}}) },
		"has 0 samples":                     func() { NewLoader(numbers(0), Config{Batch: 1}) },
		"y of a sample is flo":              func() { NewLoader(badShape{}, Config{Batch: 1}) },
		"epoch -1": func() {
			for range NewLoader(numbers(5), Config{Batch: 1}).Epoch(t.Context(), -1) {
				assert.Fail(t, "yielded")
			}
		},
	} {
		err := tensor.Try(fn)
		var f *tensor.Failure
		assert.ErrorAs(t, err, &f)
		assert.ErrorContains(t, err, want)
	}
}

type badShape struct{ numbers }

func (badShape) Len() int { return 1 }

func (badShape) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{}, tensor.Shape{DType: tensor.Float32, Dims: []int{3, 0}}
}

func TestTwoLoopsPanic(t *testing.T) {
	l := NewLoader(numbers(5), Config{Batch: 1})
	err := tensor.Try(func() {
		for range l.Epoch(t.Context(), 0) {
			for range l.Epoch(t.Context(), 0) {
				assert.Fail(t, "two loops share memory")
			}
		}
	})
	assert.ErrorContains(t, err, "the Loader is used by two loops at the same time")
	got, _ := epochOf(t, l, 0)
	assert.Len(t, got, 5, "usable after the panic")
}

func TestDatasetError(t *testing.T) {
	cause := errors.New("disk on fire")
	l := NewLoader(failing{numbers(20), func(idx []int) error {
		if idx[0] == 12 {
			return cause
		}
		return nil
	}}, Config{Batch: 6})
	steps := 0
	for range l.Epoch(t.Context(), 7) {
		steps++
	}
	assert.Equal(t, 2, steps, "the batches before it are good")
	assert.ErrorIs(t, l.Err(), cause)
	assert.EqualError(t, l.Err(), "data: epoch 7, batch 2: data.failing, sample 12: disk on fire")
	for range l.Epoch(t.Context(), 8) {
		assert.Fail(t, "yielded after an error")
	}
}

func TestDatasetPanics(t *testing.T) {
	misuse := func(idx []int) error {
		tensor.Data[float32](tensor.FromSlice([]int32{1}, 1))
		return nil
	}
	for want, before := range map[string]func([]int) error{
		"panicked: oh no\ngoroutine":   func([]int) error { panic("oh no") },
		"read as float32 (at ":         misuse,
		"Batch called runtime.Goexit":  func([]int) error { runtime.Goexit(); return nil },
		"strconv.Atoi: parsing \"x\":": func([]int) error { _, err := strconv.Atoi("x"); panic(err) },
	} {
		l := NewLoader(failing{numbers(20), before}, Config{Batch: 6})
		for range l.Epoch(t.Context(), 0) {
			assert.Fail(t, "yielded")
		}
		assert.ErrorContains(t, l.Err(), want)
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := NewLoader(numbers(20), Config{Batch: 1})
	steps := 0
	for range l.Epoch(ctx, 0) {
		if steps++; steps == 3 {
			cancel()
		}
	}
	assert.Equal(t, 3, steps)
	assert.ErrorIs(t, l.Err(), context.Canceled)
}

// A batch that a program kept has not silently become another one. Where no other one is in its memory, it stays.
func TestKeptBatch(t *testing.T) {
	l := NewLoader(numbers(10), Config{Batch: 4})
	var kept []Batch
	for _, b := range l.Epoch(t.Context(), 0) {
		kept = append(kept, b)
	}
	for _, x := range []tensor.Tensor{kept[0].X, kept[0].Y, kept[1].X} {
		require.ErrorContains(t, tensor.Try(func() { _ = tensor.Floats(x) }), "a batch that was kept")
	}
	require.Equal(t, float64(8), tensor.Floats(kept[2].X)[0], "the last one, which Samples means, too")

	for _, b := range l.Epoch(t.Context(), 1) {
		kept[0] = b
		break
	}
	require.Equal(t, float64(0), tensor.Floats(kept[0].X)[0], "of a loop that ended")
	require.Error(t, tensor.Try(func() { kept[2].X.Bytes() }), "the next epoch uses its memory")
}
