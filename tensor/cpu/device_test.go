package cpu

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

func TestMemoryOfWidenedOperands(t *testing.T) {
	dev := New(1)
	defer dev.Close()
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	x := tape.Input(tensor.NewFor(memory.Uncounted, dev, tensor.Float16, 300, 300))
	assert.Zero(t, dev.Memory().Of(memory.Other))
	tensor.MatMul(x, x, false, false)
	one := dev.Memory().Of(memory.Other)
	assert.GreaterOrEqual(t, one.Live, 3*4*300*300)
	tensor.MatMul(x, x, false, false)
	assert.Equal(t, one, dev.Memory().Of(memory.Other))
}
