package peer_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// Steps of several buckets allocate nothing on the Go heap. They do not wait for the device and do not copy between device and host. The
// runtime itself allocates now and then, so the best of several rounds counts.
func TestSteadySteps(t *testing.T) {
	start := machine(t, 1, emu.Config{})
	quietest := ^uint64(0)
	defer reliability.SteadyRuntime()()
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
			disttest.OK(step())
		}
		var before, after runtime.MemStats
		for range 10 {
			disttest.OK(g.Barrier().Wait())
			stats := gpu.Stats()
			runtime.ReadMemStats(&before)
			for range 5 {
				disttest.OK(step())
			}
			runtime.ReadMemStats(&after)
			now := gpu.Stats()
			if now.Launches = stats.Launches; now != stats {
				return fmt.Errorf("the steps waited for the device, or copied: %+v, before %+v", now, stats)
			}
			disttest.OK(g.Barrier().Wait())
			if g.Rank() == 0 {
				quietest = min(quietest, after.Mallocs-before.Mallocs)
			}
		}
		return nil
	}))
	if !reliability.Racing {
		require.Zero(t, quietest, "allocations of both ranks in five steps")
	}
}

// While a device is busy, operations of its group on host memory continue, and so do later steps of the host.
func TestHostGoesOn(t *testing.T) {
	emu.Only(t, "a stream is held")
	start := machine(t, 1, emu.Config{})
	require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		compute, g := r.Device.Queue(0).(*cuda.Queue).Stream(), r.World
		x := constant(r.Device, float32(1+g.Rank()))
		if g.Rank() == 0 {
			emu.Hold(compute)
		}
		for i := range 3 {
			votes := []float64{1}
			if err := errors.Join(g.AllReduce(x, dist.Sum).Wait(), g.SumFloats(votes)); err != nil || votes[0] != 2 {
				return fmt.Errorf("step %d: %v, %w", i, votes, err)
			}
		}
		if g.Rank() == 0 {
			emu.Release(compute)
		}
		if got := tensor.Floats(x)[part]; got != 12 { // 3, 6, 12
			return fmt.Errorf("a sum is %v", got)
		}
		return nil
	}))
}
