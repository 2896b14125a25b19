package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// With scales per row, ranks compute what one rank does. Scales per tensor are those of a rank's rows, and differ.
func TestFloat8EqualsOneRank(t *testing.T) {
	for _, s := range []tensor.Float8{tensor.PerRow, tensor.PerTensor} {
		j := job{training: simple(1, 3, 96), model: func() nn.Layer {
			m := nn.Sequential{nn.NewLinear(19, 32), nn.GELU, nn.NewLinear(32, 48), nn.GELU, nn.NewLinear(48, 5)}
			nn.Float8(m, s, "2")
			return m
		}}
		want := j.run(t)
		for _, j.Ranks = range []int{2, 3} {
			if got := j.run(t); s == tensor.PerRow {
				disttest.RequireEqual(t, want, got, 1e-5)
			} else {
				require.ErrorContains(t, got.Differs(want, 1e-4), "parameter")
			}
		}
	}
}
