package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

func newLoRA() model {
	m := newAdapter()
	nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 6, Targets: []string{"stem", "layers.*.base"}})
	return m
}

func TestLoRA(t *testing.T) {
	j := job{cfg: fsdp.Config{DType: tensor.Float64}, model: newLoRA}
	want := onOne(j).run(t)
	require.Less(t, want.Losses[9], want.Losses[0])
	for ranks := 2; ranks <= 3; ranks++ {
		j.Ranks, j.cfg.Stage = ranks, 3
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	}
}
