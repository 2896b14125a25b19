package dist_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
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
