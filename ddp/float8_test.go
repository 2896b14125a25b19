package ddp_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// With scales per row, ranks compute what one rank does. Scales per tensor are those of a rank's rows, and differ.
func TestFloat8EqualsOneRank(t *testing.T) {
	for _, s := range []tensor.Float8{tensor.PerRow, tensor.PerTensor} {
		j := job{ranks: 1, steps: 3, batch: 96, dtype: tensor.Float32, model: func() nn.Layer {
			m := nn.Sequential{nn.NewLinear(19, 32), nn.GELU, nn.NewLinear(32, 48), nn.GELU, nn.NewLinear(48, 5)}
			nn.Float8(m, s, "2")
			return m
		}}
		want := j.run(t)
		for _, n := range []int{2, 3} {
			j.ranks = n
			got, worst := j.run(t), 0.0
			for i, v := range want.params {
				worst = max(worst, math.Abs(v-got.params[i]))
			}
			if s == tensor.PerRow {
				require.Less(t, worst, 1e-5, "%d ranks", n)
			} else {
				require.Greater(t, worst, 1e-4, "%d ranks", n)
			}
		}
	}
}
