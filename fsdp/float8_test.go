package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// newFloat8 is a chain whose two layers in the middle compute with 8-bit floats.
func newFloat8() model {
	c := &chain{nn.Sequential{nn.NewLinear(width, 32), nn.NewLinear(32, 48), nn.NewLinear(48, 32), nn.NewLinear(32, classes)}}
	nn.Float8(c, tensor.PerRow, "layers.1", "layers.2")
	return c
}

// Weights that are cut are scaled whole: with scales per row, ranks compute what one rank does.
func TestFloat8EqualsOneRank(t *testing.T) {
	j := job{training: training{Steps: 3}, cfg: fsdp.Config{DType: tensor.Float32}, model: newFloat8}
	want := onOne(j).run(t)
	require.Less(t, want.Losses[2], want.Losses[0])
	for stage := 1; stage <= 3; stage++ {
		for ranks := 2; ranks <= 3; ranks++ {
			j.Ranks, j.cfg.Stage = ranks, stage
			disttest.RequireEqual(t, want, j.run(t), 1e-5)
		}
	}
}
