package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// Hits are counted on the host, wherever logits and labels are.
func TestHitsOnDevices(t *testing.T) {
	dev := tensortest.NewRemote(t, 1)
	logits := tensor.NewTape(dev).Input(tensor.FromSlice([]float32{0, 1, 5, 2, 3, 4}, 3, 2))
	labels := tensor.FromSlice([]int64{1, 1, 1}, 3)
	assert.Equal(t, 2.0, nn.Hits(logits, labels))
	assert.Equal(t, 2.0, nn.Hits(logits, tensortest.On(dev, labels)))
}

// A parameter that is somewhere else is an error that says where, and moves when it is told to.
func TestParametersOnOtherDevices(t *testing.T) {
	dev := tensortest.NewRemote(t, 1)
	layer := nn.NewLinear(2, 1)
	host := cpu.New(1)
	defer host.Close()
	params := nn.Init(layer, host, tensor.Float32, 1)
	x := tensor.NewTape(dev).Input(tensor.FromSlice([]float32{1, 2}, 1, 2))
	err := tensor.Try(func() { layer.Forward(x) })
	assert.ErrorContains(t, err, "bias is on cpu, the tape on remote (see Param.To)")
	want := tensor.Floats(layer.Forward(tensor.NewTape(host).Input(tensor.FromSlice([]float32{1, 2}, 1, 2))))
	for _, p := range params {
		p.To(dev)
	}
	assert.Equal(t, want, tensor.Floats(layer.Forward(x)))
}
