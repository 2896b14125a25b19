package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	j := job{steps: 10, batch: 18, micro: 2, cfg: fsdp.Config{DType: tensor.Float64}, model: newLoRA}
	want := onOne(j).run(t)
	require.Less(t, want.losses[9], want.losses[0])
	for ranks := 2; ranks <= 3; ranks++ {
		j.ranks, j.cfg.Stage = ranks, 3
		requireClose(t, want, j.run(t), 1e-10, "%d ranks", ranks)
	}
}
