package data_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

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
