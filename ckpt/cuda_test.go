package ckpt_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	gpu "github.com/ringo-ml/ringo/tensor/cuda"
)

// A save copies from a GPU to page-locked memory and waits once. The next save reuses that memory.
func TestSaveFromGPU(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Reverse: true})
	device, err := dist.Devices("cuda")
	require.NoError(t, err)
	const tensors = 20
	make20 := func(dev tensor.Device, seed uint64) (params nn.Params) {
		for i := range tensors {
			p := tensor.NewParam(tensor.NormalInit(0, 1), 30+i, 7)
			p.SetName(string(rune('a' + i)))
			p.SetTransposed(i%3 == 0)
			p.Make(dev, tensor.Float32, seed)
			params = append(params, p)
		}
		return params
	}
	for _, async := range []bool{false, true} {
		dir := t.TempDir()
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 1, Device: device}, func(ctx context.Context, r *dist.Rank) error {
			params := make20(r.Device, 1)
			for _, p := range params {
				tensor.ToHost(p.Local)
			}
			s := ckpt.NewSaver(r.World, dir, ckpt.Config{Async: async})
			for step, mallocs := range []int64{1, 0} {
				before := r.Device.(*gpu.Device).GPU().Stats()
				require.NoError(t, s.Save(ctx, ckpt.State{Step: step, Params: params}))
				require.NoError(t, s.Wait())
				now := r.Device.(*gpu.Device).GPU().Stats()
				require.Equal(t, cuda.Stats{DeviceToHost: tensors, Syncs: 1, Mallocs: mallocs}, cuda.Stats{
					DeviceToHost: now.DeviceToHost - before.DeviceToHost, Syncs: now.Syncs - before.Syncs, Mallocs: now.Mallocs - before.Mallocs})
			}
			got := make20(r.Device, 2)
			_, err := ckpt.Load(ctx, r.World, filepath.Join(dir, "step-00000001"), &ckpt.State{Params: got}, ckpt.LoadConfig{})
			require.NoError(t, err)
			for i, p := range got {
				require.Equal(t, tensor.Floats(params[i].Local), tensor.Floats(p.Local))
			}
			return s.Close()
		}))
	}
}
