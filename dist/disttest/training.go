package disttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// Part returns the first row of a rank and its number of rows. The numbers of rows differ on purpose.
func Part(rows, rank, ranks int) (first, n int) {
	cut := func(k int) int { return rows * k * (k + 1) / (ranks * (ranks + 1)) }
	return cut(rank), cut(rank+1) - cut(rank)
}

// SteadySteps requires that two ranks allocate nothing in at least one of several rounds of training steps. One round is enough, because
// some have steps that compare the ranks, which allocates. NCCL's engine allocates whenever its goroutine waits; with the race detector, so
// does each call of a library. On GPUs, steps must not copy between host and device, wait for a device, or ask the driver for memory.
// stepper makes a rank's model and returns a step.
func SteadySteps(t *testing.T, launch Launcher, rounds, steps int, stepper func(r *dist.Rank) (func() error, error)) {
	t.Helper()
	quietest := uint64(1 << 62)
	defer reliability.SteadyRuntime()()
	err := launch(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		step, err := stepper(r)
		for i := 0; i < 10 && err == nil; i++ {
			err = step()
		}
		if err != nil {
			return err
		}
		if dev, ok := r.Device.(*cuda.Device); ok {
			if err := staysOnDevice(r, dev, steps, step); err != nil || reliability.Racing || r.Engine() == "nccl" {
				if r.World.Rank() == 0 {
					quietest = 0
				}
				return err
			}
		}
		var before, after runtime.MemStats
		for range rounds {
			OK(between(r, func() { runtime.ReadMemStats(&before) }))
			for range steps {
				OK(step())
			}
			if err := between(r, func() {
				runtime.ReadMemStats(&after)
				quietest = min(quietest, after.Mallocs-before.Mallocs)
			}); err != nil {
				return err
			}
			if quietest == 0 { // both ranks read the same value: it changes only between two barriers
				break
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, quietest, "allocations of both ranks in %d steps", steps)
}

// staysOnDevice checks what steps ask of a rank's GPU. The other rank may share it.
func staysOnDevice(r *dist.Rank, dev *cuda.Device, steps int, step func() error) error {
	OK(r.World.Barrier().Wait())
	before := dev.GPU().Stats()
	for range steps {
		OK(step())
	}
	after := dev.GPU().Stats()
	OK(r.World.Barrier().Wait())
	if before.Launches == after.Launches {
		return errors.New("no kernel was launched")
	}
	after.Launches = before.Launches
	if before != after {
		return fmt.Errorf("%d steps waited or copied: the device counts %+v before and %+v after them", steps, before, after)
	}
	return nil
}

// between runs fn on rank 0 while no rank computes.
func between(r *dist.Rank, fn func()) error {
	if err := r.World.Barrier().Wait(); err != nil {
		return err
	}
	if r.World.Rank() == 0 {
		fn()
	}
	return r.World.Barrier().Wait()
}
