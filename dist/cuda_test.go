package dist_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// A rank has its device's context current from its beginning, so CUDA calls that need a context work.
func TestRanksAreBound(t *testing.T) {
	devices, err := emu.Start(t, emu.Config{}).Count()
	require.NoError(t, err)
	device, err := dist.Devices("cuda")
	require.NoError(t, err)
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 4, Device: device}, func(_ context.Context, r *dist.Rank) error {
		gpu := r.Device.(*cuda.Device).GPU()
		pool := gpu.NewPool("test")
		p := disttest.Must(pool.Alloc(r.Device.Queue(0).(*cuda.Queue).Stream(), 100))
		if at, err := gpu.Owner(p); err != nil || at != r.World.Rank()%devices {
			t.Errorf("rank %d has memory of device %d: %v", r.World.Rank(), at, err)
		}
		disttest.OK(pool.Free(p))
		return pool.Close()
	}))
}

// Operations that a captured step refuses, because replays do not run the host's code around them.
func TestRefusedInCapturedSteps(t *testing.T) {
	emu.Start(t, emu.Config{Devices: 2})
	device, err := dist.Devices("cuda")
	require.NoError(t, err)
	for want, do := range map[string]func(g *dist.Group, x tensor.Tensor) error{
		"allreduce seq 3 of group world: on host memory": func(g *dist.Group, _ tensor.Tensor) error { return g.SumFloats([]float64{1}) },
		"allgather seq 5 of group world: on host memory": object,
		"allreduce seq 3 of group world: the host waits for": func(g *dist.Group, x tensor.Tensor) error {
			return g.AllReduce(x, dist.Sum).WaitHost(context.Background())
		},
		"recv seq 1 of group world: from any rank": fromAny,
	} {
		err = dist.Run(context.Background(), dist.Config{Ranks: 2, Device: device}, func(_ context.Context, r *dist.Rank) error {
			x := tensor.New(r.Device, tensor.Float32, 8)
			step := capture.New(r.Device, func(...tensor.Tensor) error { return do(r.World, x) })
			for range 2 {
				disttest.OK(step.Run())
			}
			return step.Run()
		})
		require.ErrorContains(t, err, want)
	}
}

// object gathers values of Go.
func object(g *dist.Group, _ tensor.Tensor) error {
	_, err := dist.AllGatherObject(g, g.Rank())
	return err
}

// fromAny receives from any rank.
func fromAny(g *dist.Group, x tensor.Tensor) error {
	if g.Rank() == 1 {
		return g.Send(x, 0, 1).Wait()
	}
	_, err := g.RecvAny(x, 1)
	return err
}
