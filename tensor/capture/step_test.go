package capture_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// On a device that cannot record, a captured step is its function: on the tensors that Run gets, whatever their shape.
func TestStepOnTheCPU(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	var got []tensor.Tensor
	var failure error
	step := capture.New(dev, func(in ...tensor.Tensor) error {
		got = in
		return failure
	})
	x, y := tensor.New(dev, tensor.Float32, 3), tensor.New(dev, tensor.Int64, 3)
	for range 5 {
		require.NoError(t, step.Run(x, y))
		assert.Equal(t, []tensor.Tensor{x, y}, got)
	}
	require.NoError(t, step.Run(y))
	assert.Equal(t, []tensor.Tensor{y}, got)
	failure = errors.New("no luck")
	require.ErrorIs(t, step.Run(), failure)
	failure = nil
	require.NoError(t, step.Run())
	assert.Zero(t, testing.AllocsPerRun(10, func() { _ = step.Run(x, y) }))
	require.NoError(t, step.Close())
	require.ErrorContains(t, step.Run(x), "closed")
}

func TestRunInsideItself(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	var step *capture.Step
	var within error
	step = capture.New(dev, func(...tensor.Tensor) error {
		within = step.Run()
		return nil
	})
	require.NoError(t, step.Run())
	require.ErrorContains(t, within, "while it runs")
}
