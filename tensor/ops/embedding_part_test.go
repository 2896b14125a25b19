package ops_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The parts of a table together give the table's result, and each gets its rows of the gradient.
func TestEmbeddingPart(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16} {
		ids := tensor.FromSlice([]int64{0, 6, 3, 3, 2, 5}, 2, 3)
		table, g := random(host, d, 1, 7, 4), random(host, d, 2, 2, 3, 4)
		run := func(f func(w tensor.Tensor) tensor.Tensor, w tensor.Tensor) (out, grad []float64) {
			tape := tensor.NewTape(host)
			x := tape.Leaf(w)
			y := f(x)
			out = tensor.Floats(y)
			tape.BackwardFrom([]tensor.Tensor{y}, []tensor.Tensor{tape.Input(g)})
			return out, tensor.Floats(tape.GradOf(x))
		}
		want, wantGrad := run(func(w tensor.Tensor) tensor.Tensor { return ops.Embedding(w, ids) }, table)
		sum, grad := make([]float64, len(want)), []float64(nil)
		for _, rows := range [][2]int{{0, 3}, {3, 4}, {4, 7}} {
			part := tensor.ToHost(tensor.NewTape(host, tensor.NoGrad()).Input(table).Slice(0, rows[0], rows[1]))
			y, dy := run(func(w tensor.Tensor) tensor.Tensor { return ops.EmbeddingPart(w, ids, rows[0], 7) }, part)
			for i := range sum {
				sum[i] += y[i]
			}
			grad = append(grad, dy...)
		}
		assert.Equal(t, want, sum, d)
		assert.Equal(t, wantGrad, grad, d)
	}
}

func TestEmbeddingPartMisuse(t *testing.T) {
	w := tensor.NewTape(host, tensor.NoGrad()).Input(random(host, tensor.Float32, 1, 3, 4))
	for want, f := range map[string]func(){
		"index 1 is 7, not in [0,7)":                    func() { ops.EmbeddingPart(w, tensor.FromSlice([]int64{0, 7}, 2), 2, 7) },
		"index 0 is -1, not in [0,7)":                   func() { ops.EmbeddingPart(w, tensor.FromSlice([]int64{-1}, 1), 2, 7) },
		"is not a part of a table of 4 rows, from 2 on": func() { ops.EmbeddingPart(w, tensor.FromSlice([]int64{0}, 1), 2, 4) },
		"indices must be int64 or int32":                func() { ops.EmbeddingPart(w, tensor.FromSlice([]uint8{0}, 1), 2, 7) },
	} {
		require.ErrorContains(t, tensor.Try(f), want)
	}
}
