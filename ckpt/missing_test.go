package ckpt_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A layer that the checkpoint need not have begins anew, its optimizer's state too. Another one is an error.
func TestMissingLayerWithOptimizer(t *testing.T) {
	state := func(layers int) *ckpt.State {
		var m nn.Sequential
		for range layers {
			m = append(m, nn.NewLinear(2, 2))
		}
		params := nn.Init(m, tensor.NewCPU(1), tensor.Float32, 1)
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
