package dist_test

import (
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// 100 steady all-reduces of 2 ranks, small and large, must not allocate on the Go heap.
func TestAllReduceDoesNotAllocate(t *testing.T) {
	for _, count := range []int{1, 100_000} {
		var grown uint64
		err := dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			x := tensor.New(r.Device, tensor.Float32, count)
			steps := func(n int) error {
				for range n {
					if err := r.World.AllReduce(x, dist.Avg).Wait(); err != nil {
						return err
					}
				}
				return r.World.Barrier().Wait()
			}
			if err := steps(200); err != nil {
				return err
			}
			before := mallocs()
			if err := steps(100); err != nil {
				return err
			}
			if r.World.Rank() == 0 {
				grown = mallocs() - before
			}
			return r.World.Barrier().Wait()
		})
		require.NoError(t, err)
		require.LessOrEqual(t, grown, uint64(2), "count %d", count) // ReadMemStats of the other rank may add one or two
	}
}
