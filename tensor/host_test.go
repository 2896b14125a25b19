package tensor

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A program without package cpu has tensors; what computes says what to import.
func TestHostWithoutKernels(t *testing.T) {
	h := &host{}
	x := New(h, Float32, 3)
	Copy(x, FromSlice([]float32{1, 2, 3}, 3))
	assert.Equal(t, []float64{1, 2, 3}, Floats(x))
	assert.Equal(t, 12, h.Memory().Total().Live)
	assert.NoError(t, h.Mappable(1))
	assert.ErrorContains(t, Try(func() { NewTape(h) }), `nothing computes in host memory: import "github.com/ringo-ml/ringo/tensor/cpu"`)
}
