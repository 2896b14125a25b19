package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
)

// Any number of tensors can be joined. Only one of them must be on a tape. Each gets its part of the gradient.
func TestConcatOfMany(t *testing.T) {
	for _, n := range []int{1, 8, 9, 17, 70} {
		for _, dim := range []int{0, 1} {
			tape := NewTape(hostDevice)
			var xs []Tensor
			var want []float64
			p := NewParam(UniformInit(-1, 1), 1, 1)
			p.Make(hostDevice, Float64, 1)
			for i := range n - 1 {
				xs = append(xs, FromSlice([]float64{float64(i)}, 1, 1))
				want = append(want, float64(i))
			}
			y := Concat(dim, append(xs, tape.Use(p))...)
			assert.Equal(t, append(want, p.Value.Item()), Floats(y))
			assert.Equal(t, n, y.Dim(dim))
			tape.Backward(y.Mul(y).Sum())
			assert.Equal(t, []float64{2 * p.Value.Item()}, Floats(p.Grad), "%d", n)
		}
	}
}
