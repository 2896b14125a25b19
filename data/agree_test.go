package data_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// own is a Dataset of which each rank may have another one.
type own struct {
	*data.Tensors
	change func(x []float64)
}

func (o own) Batch(idx []int, x, y tensor.Tensor) error {
	err := o.Tensors.Batch(idx, x, y)
	o.change(tensor.Data[float64](x))
	return err
}

// Data sets of one size may have other samples. That is seen where a rank reads the same ones each time, and they are not zeros. Where a
// rank does not, as with random augmentation, it is a warning, once.
func TestLoadersHaveTheSameSamples(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	for name, c := range map[string]struct {
		different bool
		change    func(rank int, r *rand.Rand, x []float64)
	}{
		"the same":             {false, func(int, *rand.Rand, []float64) {}},
		"others on a rank":     {true, func(rank int, _ *rand.Rand, x []float64) { x[0] += float64(rank) }},
		"a number of the rank": {true, func(rank int, _ *rand.Rand, x []float64) { x[len(x)-1] = float64(1 + rank) }},
		"other scales":         {true, func(rank int, _ *rand.Rand, x []float64) { x[1] *= float64(2 + rank%2) }},
		"noise each time":      {false, func(_ int, r *rand.Rand, x []float64) { x[0] = r.NormFloat64() }},
		"turned by chance":     {false, func(_ int, r *rand.Rand, x []float64) { x[0] *= float64(1 - 2*r.IntN(2)) }},
		"a part, zeros are left": {false, func(rank int, _ *rand.Rand, x []float64) {
			if rank == 1 {
				clear(x)
			}
		}},
	} {
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		err := dist.Run(t.Context(), dist.Config{Ranks: 3, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			x := make([]float64, 12*2)
			for i := range x {
				x[i] = float64(1 + i)
			}
			set := disttest.Must(data.NewTensors(tensor.FromSlice(x, 12, 2), tensor.FromSlice(make([]int64, 12), 12)))
			random := rand.New(rand.NewPCG(uint64(r.World.Rank()), 1))
			mine := own{set, func(x []float64) { c.change(r.World.Rank(), random, x) }}
			l := data.NewLoader(mine, data.Config{Batch: 4, Sharder: r.World})
			for range l.Epoch(ctx, 0) {
			}
			return l.Err()
		})
		if c.different {
			assert.ErrorContains(t, err, "has first and last samples of checksum ", name)
		} else {
			assert.NoError(t, err, name)
		}
		random := name == "noise each time" || name == "turned by chance"
		assert.Equal(t, b2i(random), strings.Count(log.String(), "samples are other ones each time they are read"), name)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Ranks that cut other batches would train on some samples twice and on others never: all of them get an error before their first batch.
func TestLoadersAreTheSame(t *testing.T) {
	for want, change := range map[string]func(c *data.Config, samples *int, epoch *int){
		"":              func(*data.Config, *int, *int) {},
		"a dataset of ": func(_ *data.Config, samples, _ *int) { *samples = 11 },
		"Batch ":        func(c *data.Config, _, _ *int) { c.Batch = 5 },
		"Shuffle ":      func(c *data.Config, _, _ *int) { c.Shuffle = false },
		"DropLast ":     func(c *data.Config, _, _ *int) { c.DropLast = true },
		"Seed ":         func(c *data.Config, _, _ *int) { c.Seed = 7 },
		"epoch ":        func(_ *data.Config, _, epoch *int) { *epoch = 1 },
	} {
		failed := make([]error, 3)
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 3, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			c, samples, epoch := data.Config{Batch: 4, Shuffle: true, Seed: 6, Sharder: r.World}, 12, 0
			if r.World.Rank() == 1 {
				change(&c, &samples, &epoch)
			}
			set := disttest.Must(data.Synthetic(samples, 1, tensor.Float32))
			loader, steps := data.NewLoader(set, c), 0
			for range loader.Epoch(ctx, epoch) {
				steps++
			}
			failed[r.World.Rank()] = loader.Err()
			if want == "" && steps != 3 || want != "" && steps != 0 {
				t.Errorf("%q: %d steps", want, steps)
			}
			return nil
		}))
		for _, err := range failed {
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "data: loaders: ranks differ: rank 1 has ")
				require.ErrorContains(t, err, want)
			}
		}
	}
}
