package dist_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// A rank has its device's context from its beginning on: calls that need one, and do not make one current, work.
func TestRanksAreBound(t *testing.T) {
	devices, err := emu.Start(t, emu.Config{}).Count()
	require.NoError(t, err)
	device, err := dist.Devices("cuda")
	require.NoError(t, err)
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 4, Device: device}, func(_ context.Context, r *dist.Rank) error {
		gpu := r.Device.(*cuda.Device).GPU()
		pool := gpu.NewPool("test")
		p, err := pool.Alloc(r.Device.Queue(0).(*cuda.Queue).Stream(), 100)
		if err != nil {
			return err
		}
		if at, err := gpu.Owner(p); err != nil || at != r.World.Rank()%devices {
			t.Errorf("rank %d has memory of device %d: %v", r.World.Rank(), at, err)
		}
		if err := pool.Free(p); err != nil {
			return err
		}
		return pool.Close()
	}))
}

// A step that is captured cannot communicate: its replays would not.
func TestNothingIsSentInCapturedSteps(t *testing.T) {
	emu.Start(t, emu.Config{Devices: 2})
	device, err := dist.Devices("cuda")
	require.NoError(t, err)
	for _, n := range []int{1, 2} {
		err = dist.Run(context.Background(), dist.Config{Ranks: n, Device: device}, func(_ context.Context, r *dist.Rank) error {
			x := tensor.New(r.Device, tensor.Float32, 8)
			step := tensor.Capture(r.Device, func(...tensor.Tensor) error { return r.World.AllReduce(x, dist.Sum).Wait() })
			for range 2 {
				if err := step.Run(); err != nil {
					return err
				}
			}
			return step.Run()
		})
		require.ErrorContains(t, err, "allreduce")
		require.ErrorContains(t, err, "inside a captured step (see tensor.Captured)")
	}
}
