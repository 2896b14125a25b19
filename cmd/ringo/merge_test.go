package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const mergeBase = "../../models/gpt/testdata/gpt2"

// adapted writes random adapters for mergeBase, and returns their folder and what the model computes with them.
func adapted(t *testing.T) (dir string, want []float64) {
	saves := t.TempDir()
	dir = filepath.Join(t.TempDir(), "adapters")
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1}, func(ctx context.Context, r *dist.Rank) error {
		m, err := gpt.Open(mergeBase)
		require.NoError(t, err)
		adapters := nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 3, RSLoRA: true, Targets: []string{"blocks.*"}, Save: []string{"wpe", "ln_f"}})
		params := nn.Init(m, r.Device, tensor.Float32, 1)
		for i, p := range adapters {
			x := tensor.Data[float32](p.Value)
			for j := range x {
				x[j] = float32((i+3*j)%7-3) / 8
			}
			p.Changed()
		}
		_, err = ckpt.Load(ctx, r.World, mergeBase, &ckpt.State{Params: params.Base()}, m.LoadConfig())
		require.NoError(t, err)
		want = logits(m, r.Device)
		s := ckpt.NewSaver(r.World, saves, ckpt.Config{})
		require.NoError(t, s.Save(ctx, ckpt.State{Step: 1, Params: adapters}))
		require.NoError(t, s.Close())
		return peft.Export(m, filepath.Join(saves, "step-00000001"), dir)
	}))
	return dir, want
}

func logits(m *gpt.Model, dev tensor.Device) []float64 {
	ids := tensor.FromSlice([]int64{1, 4, 9, 3, 12, 10}, 1, 6)
	return tensor.Floats(m.Forward(tensor.NewTape(dev, tensor.NoGrad()).Input(ids)))
}

// A merged model computes what the base does with the adapters.
func TestMerge(t *testing.T) {
	t.Parallel()
	dir, want := adapted(t)
	to := filepath.Join(t.TempDir(), "merged")
	stdout, stderr, code := run(t, "ckpt", "merge", mergeBase, dir, to)
	require.Zero(t, code, stdout+stderr)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1}, func(ctx context.Context, r *dist.Rank) error {
		of := func(dir string) []float64 {
			m, err := gpt.Open(dir)
			require.NoError(t, err)
			params := nn.Init(m, r.Device, tensor.Float32, 1)
			_, err = ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
			require.NoError(t, err)
			return logits(m, r.Device)
		}
		require.InDeltaSlice(t, want, of(to), 1e-5)
		require.Greater(t, math.Abs(want[0]-of(mergeBase)[0]), 1e-3)
		half := filepath.Join(t.TempDir(), "half")
		stdout, stderr, code := run(t, "ckpt", "merge", "-dtype", "bfloat16", mergeBase, dir, half)
		require.Zero(t, code, stdout+stderr)
		require.InDeltaSlice(t, want, of(half), 0.1)
		_, list, err := inspect.List(filepath.Join(half, "model.safetensors"))
		require.NoError(t, err)
		require.Equal(t, "BF16", list[0].DType)
		config, err := os.ReadFile(filepath.Join(half, "config.json"))
		require.NoError(t, err)
		require.Contains(t, string(config), `"dtype": "bfloat16"`)
		return nil
	}))

	_, stderr, code = run(t, "ckpt", "merge", "-dtype", "int64", mergeBase, dir, to)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, `-dtype "int64" is no type of floats`)
	_, stderr, code = run(t, "ckpt", "merge", mergeBase, dir, to)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "exists")
	none := filepath.Join(t.TempDir(), "none")
	_, stderr, code = run(t, "ckpt", "merge", mergeBase, mergeBase, none)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "adapter_config.json")
	_, err := os.Stat(none)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
