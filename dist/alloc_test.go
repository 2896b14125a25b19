package dist_test

import (
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// 100 steady all-reduces of 2 ranks, small and large, must not allocate on the Go heap. The runtime itself allocates now and then, so the
// best of several rounds counts.
func TestAllReduceDoesNotAllocate(t *testing.T) {
	defer reliability.SteadyRuntime()()
	for _, count := range []int{1, 100_000} {
		fewest := ^uint64(0)
		err := dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			x := tensor.New(r.Device, tensor.Float32, count)
			for range 10 {
				var before uint64
				if r.World.Rank() == 0 {
					before = mallocs()
				}
				disttest.OK(reduceTimes(r, x, 100))
				if r.World.Rank() == 0 {
					fewest = min(fewest, mallocs()-before)
				}
				disttest.OK(r.World.Barrier().Wait())
			}
			return nil
		})
		require.NoError(t, err)
		require.Zero(t, fewest, "count %d", count)
	}
}

// reduceTimes runs n all-reduces between two barriers.
func reduceTimes(r *dist.Rank, x tensor.Tensor, n int) error {
	if err := r.World.Barrier().Wait(); err != nil {
		return err
	}
	for range n {
		if err := r.World.AllReduce(x, dist.Avg).Wait(); err != nil {
			return err
		}
	}
	return r.World.Barrier().Wait()
}
