package tensor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A grouped product has the same bits as one product for each group, for any number of threads.
func TestGroupedLinearEqualsALinearForEachGroup(t *testing.T) {
	sizes := []int64{70, 0, 1, 33, 0}
	for _, d := range []DType{Float32, Float64, BFloat16, Float16} {
		for _, threads := range []int{1, 3} {
			in, out := 37, 41
			if threads == 3 {
				in, out = 36, 48
			}
			dev := NewCPU(threads)
			ps := &params{dev: dev, dtype: d}
			u := UniformInit(-1, 1)
			x, w := ps.add("x", u, 104, in), ps.add("w", u, len(sizes), out, in)
			run := func(f func(tape *Tape) Tensor) ([]float64, [][]float64) {
				tape := NewTape(dev)
				defer tape.Close()
				for i := range 2 {
					y := f(tape)
					got := Floats(y)
					if i == 0 {
						tape.Backward(y.Mul(y).Sum(), More())
						continue
					}
					tape.Backward(y.Mul(y).Sum())
					grads := ps.grads()
					ps.consume()
					return got, grads
				}
				return nil, nil
			}
			want, wantGrads := run(func(tape *Tape) Tensor {
				var parts []Tensor
				first := 0
				for e, n := range sizes {
					rows := tape.Use(x).Slice(0, first, first+int(n))
					parts = append(parts, Linear(rows, tape.Use(w).Slice(0, e, e+1).Reshape(out, in), Tensor{}))
					first += int(n)
				}
				return Concat(0, parts...)
			})
			y, grads := run(func(tape *Tape) Tensor { return GroupedLinear(tape.Use(x), tape.Use(w), FromSlice(sizes, len(sizes))) })
			require.Equal(t, want, y)
			require.Equal(t, wantGrads[0], grads[0])
			require.Equal(t, wantGrads[1], grads[1])
			dev.Close()
		}
	}
}

func TestGroupedLinearRefusesWrongCounts(t *testing.T) {
	tape := NewTape(hostDevice)
	x, w := tape.Input(random(hostDevice, Float32, 1, 4, 2)), tape.Input(random(hostDevice, Float32, 1, 2, 3, 2))
	for _, counts := range [][]int64{{1, 2}, {-1, 5}, {5, -1}, {3, 2}, {1<<63 - 1, 1<<63 - 1}} {
		err := Try(func() { GroupedLinear(x, w, FromSlice(counts, 2)) })
		assert.ErrorContains(t, err, "group sizes")
	}
	assert.ErrorContains(t, Try(func() { GroupedLinear(x, w, FromSlice([]int64{4}, 1)) }),
		"dimension 0 of the counts is 1, dimension 0 of the weights is 2")
	assert.ErrorContains(t, Try(func() { GroupedLinear(x, w, FromSlice([]uint8{2, 2}, 2)) }), "int64 or int32")
}
