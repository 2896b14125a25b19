package tensor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Zeros do not count twice in a partial sum. What is made of them may be something else.
func TestZerosInPartialSums(t *testing.T) {
	for name, f := range map[string]func(zeros Tensor) Tensor{
		"as they are": func(z Tensor) Tensor { return z },
		"moved":       func(z Tensor) Tensor { return z.Reshape(2, 3).Permute(1, 0).Slice(1, 0, 1) },
	} {
		tape := typeTape(t)
		y := of(tape, Partial)
		z := f(tape.Zeros(Float64, 3, 2))
		require.NoError(t, Try(func() { assert.Equal(t, Partial, z.Add(y).Types().At(0)) }), name)
	}
	for name, f := range map[string]func(zeros Tensor) Tensor{
		"exp":     Tensor.Exp,
		"softmax": Tensor.Softmax,
		"pad":     func(z Tensor) Tensor { return z.Slice(1, 0, 1).Affine(1, 1).Pad(1, 0, 1) },
		"concat":  func(z Tensor) Tensor { return Concat(1, z.Slice(1, 0, 1), z.Exp().Slice(1, 0, 1)) },
	} {
		tape := typeTape(t)
		y := of(tape, Partial)
		z := f(tape.Zeros(Float64, 3, 2))
		require.ErrorContains(t, Try(func() { z.Add(y) }), "would count once for each rank", name)
	}
}
