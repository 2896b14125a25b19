package cpu

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
)

func TestMemoryOfWidenedOperands(t *testing.T) {
	dev := New(1)
	defer dev.Close()
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	x := tape.Input(tensor.NewFor(tensor.Uncounted, dev, tensor.Float16, 300, 300))
	assert.Zero(t, dev.Memory().Of(tensor.OtherMemory))
	tensor.MatMul(x, x, false, false)
	one := dev.Memory().Of(tensor.OtherMemory)
	assert.GreaterOrEqual(t, one.Live, 3*4*300*300)
	tensor.MatMul(x, x, false, false)
	assert.Equal(t, one, dev.Memory().Of(tensor.OtherMemory))
}
