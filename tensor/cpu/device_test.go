package cpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A kernel on a closed device does not use what it kept there: other devices have got the workspaces.
func TestCloseForgetsWhatKernelsKept(t *testing.T) {
	dev := New(2)
	q := dev.Queue(0).(*Queue)
	GemmWorkspaceOf[float32](q, 1)
	kept := Local[int]{}.Of(q)
	*kept = 7
	require.Same(t, kept, Local[int]{}.Of(q))
	dev.Close()
	require.Zero(t, *Local[int]{}.Of(q))
	require.Empty(t, q.workspaces32)
}
