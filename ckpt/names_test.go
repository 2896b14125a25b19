package ckpt_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The parameters of two models have the same names where nothing holds both: a load would give both the same values.
func TestTwoParametersOfAName(t *testing.T) {
	student, teacher := nn.NewLinear(2, 3), nn.NewLinear(2, 3)
	one := nn.Init(student, cpu.New(1), tensor.Float32, 1)
	two := slices.Concat(one, nn.Init(teacher, cpu.New(1), tensor.Float32, 2))
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, ckpt.SaveFile(t.Context(), path, ckpt.State{Params: one}))
	const want = "numbers 0 and 2 of State.Params, weight and weight, are both stored as weight: give those of one nn.ParamsOf, " +
		"of a struct that holds both models"
	require.ErrorContains(t, ckpt.SaveFile(t.Context(), path, ckpt.State{Params: two}), want)
	before := tensor.Floats(two[2].Value)
	for _, c := range []ckpt.LoadConfig{{}, {Partial: true}} {
		_, err := ckpt.LoadFile(t.Context(), path, &ckpt.State{Params: two}, c)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, before, tensor.Floats(two[2].Value))
	both := nn.ParamsOf(&struct{ Student, Teacher *nn.Linear }{student, teacher})
	require.NoError(t, ckpt.SaveFile(t.Context(), path, ckpt.State{Params: both}))
	_, err := ckpt.LoadFile(t.Context(), path, &ckpt.State{Params: slices.Concat(both, both)}, ckpt.LoadConfig{}) // the same, twice
	require.NoError(t, err)
}
