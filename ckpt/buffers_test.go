package ckpt_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Running statistics are saved and loaded with the parameters, and under PyTorch's names.
func TestBuffers(t *testing.T) {
	dir := t.TempDir()
	run := func(ranks int, f func(ctx context.Context, r *dist.Rank, st ckpt.State) error) {
		require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: ranks, Exact: true}, func(ctx context.Context, r *dist.Rank) error {
			params := disttest.Must(ddp.Attach(r.World, nn.Sequential{nn.NewBatchNorm2d(3)}, ddp.Config{Seed: 1}))
			return f(ctx, r, ckpt.State{Step: 7, Params: params, Optimizer: optim.NewSGD(params, optim.SGDConfig{LR: 1})})
		}))
	}
	want := []float64{0.5, 2, -3}
	run(2, func(ctx context.Context, r *dist.Rank, st ckpt.State) error {
		tensor.Copy(st.Params.ByName("0.running_mean").Value, tensor.FromSlice([]float32{0.5, 2, -3}, 3))
		saver := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		disttest.OK(saver.Save(ctx, st))
		return saver.Close()
	})
	path, err := ckpt.Latest(dir)
	require.NoError(t, err)
	run(3, func(ctx context.Context, r *dist.Rank, st ckpt.State) error {
		_, err := ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{})
		require.Equal(t, want, tensor.Floats(st.Params.ByName("0.running_mean").Value))
		require.Equal(t, []float64{1, 1, 1}, tensor.Floats(st.Params.ByName("0.running_var").Value))
		return err
	})
}

// A layer that the checkpoint need not have begins anew, its optimizer's state too. Another one is an error.
func TestMissingLayerWithOptimizer(t *testing.T) {
	state := func(layers int) *ckpt.State {
		var m nn.Sequential
		for range layers {
			m = append(m, nn.NewLinear(2, 2))
		}
		params := nn.Init(m, cpu.New(1), tensor.Float32, 1)
		return &ckpt.State{Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{LR: 0.1})}
	}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, ckpt.SaveFile(t.Context(), path, *state(1)))
	_, err := ckpt.LoadFile(t.Context(), path, state(3), ckpt.LoadConfig{AllowMissing: []string{"1.*"}})
	assert.ErrorContains(t, err, "the step count of 2.weight")
	assert.NotContains(t, err.Error(), "1.weight")
	r, err := ckpt.LoadFile(t.Context(), path, state(2), ckpt.LoadConfig{AllowMissing: []string{"1.*"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"1.bias", "1.weight"}, r.Anew)
}
