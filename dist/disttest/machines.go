package disttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// Launcher is dist.Run, or a function that chooses devices and engines for it.
type Launcher func(ctx context.Context, cfg dist.Config, fn func(ctx context.Context, r *dist.Rank) error) error

// Machine is something to train on. Training that equals one rank in host memory must do so on each Machine, also where Go code cannot
// access the memory.
type Machine struct {
	Name string
	// Start sets up the machine for a test with up to so many ranks.
	Start func(t testing.TB, ranks int) Launcher
}

// Machines returns tensortest's devices, and GPUs.
func Machines() []Machine {
	return append([]Machine{{"remote", func(t testing.TB, _ int) Launcher { return on(tensortest.Remotes(t)) }}}, GPUs()...)
}

// GPUs returns emulated GPUs: one that all ranks share; one for each rank, with the engine that Run chooses; and one for each rank, with
// NCCL.
func GPUs() []Machine {
	return []Machine{
		{"one GPU", func(t testing.TB, _ int) Launcher {
			return on(CUDA(t, emu.Config{Devices: 1, Lazy: true, Reverse: true}))
		}},
		{"GPUs", func(t testing.TB, n int) Launcher {
			return on(CUDA(t, emu.Config{Devices: n, Delay: 20 * time.Microsecond}))
		}},
		{"NCCL", func(t testing.TB, n int) Launcher {
			CUDA(t, emu.Config{Devices: n, Lazy: true})
			return overNCCL
		}},
	}
}

// OnEach runs a test with up to so many ranks on each machine.
func OnEach(t *testing.T, machines []Machine, ranks int, fn func(t *testing.T, launch Launcher)) {
	for _, m := range machines {
		t.Run(m.Name, func(t *testing.T) { fn(t, m.Start(t, ranks)) })
	}
}

// CUDA starts the emulator, and returns a function that makes its GPUs the devices of ranks.
func CUDA(t testing.TB, cfg emu.Config) dist.DeviceFunc {
	t.Helper()
	emu.Start(t, cfg)
	device, err := dist.Devices("cuda")
	require.NoError(t, err)
	return device
}

// SameOnCUDA asserts that two ranks of an example log the same text on the CPU, on one GPU and on two.
func SameOnCUDA(t *testing.T, run func(cfg dist.Config) error) {
	t.Helper()
	var want bytes.Buffer
	require.NoError(t, run(dist.Config{Ranks: 2, Log: &want}))
	require.NotEmpty(t, want.String())
	for gpus := range 2 {
		t.Run(fmt.Sprintf("%d GPUs", gpus+1), func(t *testing.T) {
			var got bytes.Buffer
			require.NoError(t, run(dist.Config{Ranks: 2, Log: &got, Device: CUDA(t, emu.Config{Devices: gpus + 1})}))
			require.Equal(t, want.String(), got.String())
		})
	}
}

// AnyRanks requires that an example works on 1 to 9 ranks, with each size.
func AnyRanks(t *testing.T, sizes []int, run func(cfg dist.Config, size int) error) {
	t.Helper()
	for n := 1; n <= 9; n++ {
		for _, size := range sizes {
			require.NoError(t, run(dist.Config{Ranks: n, Log: io.Discard}, size), "size %d on %d ranks", size, n)
		}
	}
}

// on is dist.Run with devices.
func on(device dist.DeviceFunc) Launcher {
	return func(ctx context.Context, cfg dist.Config, fn func(ctx context.Context, r *dist.Rank) error) error {
		cfg.Device = device
		return dist.Run(ctx, cfg, fn)
	}
}

// overNCCL gives each rank a GPU, and NCCL over goroutine ranks.
func overNCCL(ctx context.Context, cfg dist.Config, fn func(ctx context.Context, r *dist.Rank) error) error {
	hub, engines, devices := local.NewHub(cfg.Ranks), make([]backend.Engine, cfg.Ranks), make([]*cuda.Device, cfg.Ranks)
	for i := range engines {
		dev, err := cuda.NewDevice(i)
		if err != nil {
			return err
		}
		e, err := nccl.New(nccl.Config{Control: hub.Engine(i), Device: dev.GPU(), Compute: dev.Queue(0).(*cuda.Queue).Stream()})
		if err != nil {
			return err
		}
		engines[i], devices[i] = e, dev
	}
	cfg.Device = func(local, _ int) (tensor.Device, error) { return devices[local], nil }
	return dist.RunEngines(ctx, cfg, engines, fn)
}
