package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/tensor"
)

func TestEqualsOneRank(t *testing.T) {
	j := job{steps: 10, batch: 24, micro: 2, cfg: fsdp.Config{DType: tensor.Float64}}
	one := j
	one.ranks, one.one = 1, true
	want := one.run(t)
	require.Less(t, want.losses[9], 0.9*want.losses[0])
	for stage := 1; stage <= 3; stage++ {
		for ranks := 1; ranks <= 5; ranks++ {
			for _, hold := range []bool{false, true} {
				j.ranks, j.cfg.Stage, j.cfg.HoldGrads = ranks, stage, hold
				requireClose(t, want, j.run(t), 1e-10, "stage %d, %d ranks, hold %v", stage, ranks, hold)
			}
		}
	}
}
