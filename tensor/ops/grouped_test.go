package ops_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// A grouped product has the same bits as one product for each group, for any number of threads.
func TestGroupedLinearEqualsALinearForEachGroup(t *testing.T) {
	sizes := []int64{70, 0, 1, 33, 0}
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		for _, threads := range []int{1, 3} {
			in, out := 37, 41
			if threads == 3 {
				in, out = 36, 48
			}
			dev := cpu.New(threads)
			x, w := param(dev, d, "x", 104, in), param(dev, d, "w", len(sizes), out, in)
			run := func(f func(tape *tensor.Tape) tensor.Tensor) ([]float64, [][]float64) {
				tape := tensor.NewTape(dev)
				defer tape.Close()
				for i := range 2 {
					y := f(tape)
					got := tensor.Floats(y)
					if i == 0 {
						tape.Backward(y.Mul(y).Sum(), tensor.More())
						continue
					}
					tape.Backward(y.Mul(y).Sum())
					return got, [][]float64{tensor.Floats(x.Grad), tensor.Floats(w.Grad)}
				}
				return nil, nil
			}
			want, wantGrads := run(func(tape *tensor.Tape) tensor.Tensor {
				var parts []tensor.Tensor
				first := 0
				for e, n := range sizes {
					rows := tape.Use(x).Slice(0, first, first+int(n))
					parts = append(parts, tensor.Linear(rows, tape.Use(w).Slice(0, e, e+1).Reshape(out, in), tensor.Tensor{}))
					first += int(n)
				}
				return tensor.Concat(0, parts...)
			})
			x.Consume()
			w.Consume()
			y, grads := run(func(tape *tensor.Tape) tensor.Tensor {
				return ops.GroupedLinear(tape.Use(x), tape.Use(w), tensor.FromSlice(sizes, len(sizes)))
			})
			require.Equal(t, want, y)
			require.Equal(t, wantGrads[0], grads[0])
			require.Equal(t, wantGrads[1], grads[1])
			dev.Close()
		}
	}
}

func TestGroupedLinearRefusesWrongCounts(t *testing.T) {
	tape := tensor.NewTape(host)
	x, w := tape.Input(random(host, tensor.Float32, 1, 4, 2)), tape.Input(random(host, tensor.Float32, 1, 2, 3, 2))
	for _, counts := range [][]int64{{1, 2}, {-1, 5}, {5, -1}, {3, 2}, {1<<63 - 1, 1<<63 - 1}} {
		err := tensor.Try(func() { ops.GroupedLinear(x, w, tensor.FromSlice(counts, 2)) })
		assert.ErrorContains(t, err, "group sizes")
	}
	assert.ErrorContains(t, tensor.Try(func() { ops.GroupedLinear(x, w, tensor.FromSlice([]int64{4}, 1)) }),
		"dimension 0 of the counts is 1, dimension 0 of the weights is 2")
	assert.ErrorContains(t, tensor.Try(func() { ops.GroupedLinear(x, w, tensor.FromSlice([]uint8{2, 2}, 2)) }), "int64 or int32")
}
