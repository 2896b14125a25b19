package peer_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// Steps of several buckets allocate nothing on the Go heap, and neither wait for the device nor copy from or to the host. The
// runtime itself allocates now and then: the quietest of several rounds counts.
func TestSteadySteps(t *testing.T) {
	start := machine(t, 1, emu.Config{})
	quietest := ^uint64(0)
	require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		gpu, g := r.Device.(*cuda.Device).GPU(), r.World
		x, y := tensor.New(r.Device, tensor.Float32, 10_000), tensor.New(r.Device, tensor.Float32, 5000)
		buckets := []tensor.Tensor{x.Range(0, 3000), x.Range(3000, 6000), x.Range(6000, 10_000)}
		works := make([]dist.Work, len(buckets))
		step := func() error {
			for i, b := range buckets {
				works[i] = g.AllReduce(b, dist.Avg)
			}
			for _, w := range works {
				if err := w.Wait(); err != nil {
					return err
				}
			}
			if err := g.ReduceScatter(y, x, dist.Sum).Wait(); err != nil {
				return err
			}
			return g.AllGather(x, y).Wait()
		}
		for range 3 {
			if err := step(); err != nil {
				return err
			}
		}
		var before, after runtime.MemStats
		for range 10 {
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			stats := gpu.Stats()
			runtime.ReadMemStats(&before)
			for range 5 {
				if err := step(); err != nil {
					return err
				}
			}
			runtime.ReadMemStats(&after)
			now := gpu.Stats()
			if now.Launches = stats.Launches; now != stats {
				return fmt.Errorf("the steps waited for the device, or copied: %+v, before %+v", now, stats)
			}
			if err := g.Barrier().Wait(); err != nil {
				return err
			}
			if g.Rank() == 0 {
				quietest = min(quietest, after.Mallocs-before.Mallocs)
			}
		}
		return nil
	}))
	if !race {
		require.Zero(t, quietest, "allocations of both ranks in five steps")
	}
}
