package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// One picture with one group has the bits that it has beside another picture.
func TestGroupNormOfOnePicture(t *testing.T) {
	host := cpu.New(1)
	norm := nn.NewGroupNorm(1, 3)
	nn.Init(norm, host, tensor.Float64, 1)
	values := make([]float64, 2*3*4)
	for i := range values {
		values[i] = float64(i*i%17) - 3
	}
	tape := tensor.NewTape(host)
	both := tensor.Floats(norm.Forward(tape.Input(tensor.FromSlice(values, 2, 3, 2, 2))))
	one := tensor.Floats(norm.Forward(tape.Input(tensor.FromSlice(values[:12], 1, 3, 2, 2))))
	require.Equal(t, both[:12], one)
}
