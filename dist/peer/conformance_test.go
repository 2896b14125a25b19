package peer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// machine sets up the emulator for a test and its subtests, or uses real GPUs. It returns a Start whose ranks use so many GPUs, or all,
// in turn.
func machine(t testing.TB, gpus int, cfg emu.Config) disttest.Start {
	if !emu.OnGPU() {
		cfg.Devices = gpus
	}
	driver := emu.Start(t, cfg)
	there, err := driver.Count()
	require.NoError(t, err)
	gpus = min(gpus, there)
	t.Cleanup(func() { assert.Empty(t, emu.Leaks()) })
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	tensor.Floats(tensor.New(dev, tensor.Float32, 1)) // compiles the kernel that clears memory, so that no test waits for it
	require.NoError(t, dev.Close())
	return func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		cfg.Ranks = n
		cfg.Device = func(local, _ int) (tensor.Device, error) { return cuda.NewDevice(local % gpus) }
		return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
	}
}

// Ranks on two GPUs: some share a GPU, and reach the other GPU by the path between them. In the short form, TestLateStreams has two other
// parts, and those that are about what is above the engine are left to goroutines (dist/local).
func TestConformance(t *testing.T) {
	t.Setenv("RINGO_ALGO", "allreduce:"+algo.TwoShot)
	parts := []string{"Reductions", "NaN", "HalfRoundsOnce", "Movement", "VForms", "Forms", "Groups", "Mesh", "Batch", "Objects", "Bytes",
		"TwoGoroutines"}
	if reliability.Long(t) {
		parts = nil // all
	}
	disttest.RunEmulated(t, machine(t, 2, emu.Config{}), parts...)
}

func TestLongConformance(t *testing.T) { reliability.AsLong(t, TestConformance) }

// Small all-reduces are one-shot. Parts that have few of them are left out, and in the short form what TestOneShotBits and
// TestCopiesWaitForSlowDevices have.
func TestOneShotConformance(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	parts := []string{"NaN", "HalfRoundsOnce"}
	if reliability.Long(t) {
		parts = append(parts, "Reductions", "InFlight", "InPlace", "RandomPrograms", "Lifetimes", "Backpressure", "Dependent", "Batch", "Rebuild")
	}
	disttest.RunEmulated(t, machine(t, 2, emu.Config{}), parts...)
}

func TestLongOneShotConformance(t *testing.T) { reliability.AsLong(t, TestOneShotConformance) }

// Every operation among 1 to 4 ranks, in the short form 1 and 3, on one GPU and on as many as there are ranks.
func TestRanks(t *testing.T) {
	sizes := []int{1, 3}
	if reliability.Long(t) {
		sizes = []int{1, 2, 3, 4}
	}
	for _, n := range sizes {
		for _, gpus := range slices.Compact([]int{1, n}) {
			t.Run(fmt.Sprintf("%d ranks, %d GPUs", n, gpus), func(t *testing.T) {
				start := machine(t, gpus, emu.Config{Delay: 20 * time.Microsecond})
				require.NoError(t, start(t, n, dist.Config{Threads: 1}, func(r *dist.Rank) error {
					for i, op := range disttest.Operations() {
						if n == 1 && (op.Name == "send" || op.Name == "recv" || op.Name == "batch") {
							continue
						}
						for _, count := range []int{1, 1001} {
							if err := op.Run(r.World, i%n, count); err != nil {
								return fmt.Errorf("%s of %d: %w", op.Name, count, err)
							}
						}
					}
					return nil
				}))
			})
		}
	}
}

func TestLongRanks(t *testing.T) { reliability.AsLong(t, TestRanks) }

// Streams that pause at random, or that run only as far as something waits for them. TestDeviceOrder and TestRankFailsBetweenOperations are
// short forms, too.
func TestLateStreams(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	parts := []string{"InPlace", "PointToPoint"}
	if reliability.Long(t) {
		parts = append(parts, "Dependent", "RandomPrograms", "InFlight")
	}
	disttest.RunEmulated(t, machine(t, 2, emu.Config{Lazy: true, Delay: 200 * time.Microsecond}), parts...)
	if reliability.Long(t) { // no memory is written after a failure
		disttest.RunEmulated(t, machine(t, 2, emu.Config{Delay: 500 * time.Microsecond}), "Lifetimes")
	}
}

func TestLongLateStreams(t *testing.T) { reliability.AsLong(t, TestLateStreams) }
