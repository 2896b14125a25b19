package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/train"
)

// output returns the loss of the first step and the accuracy that three steps print.
func output(t *testing.T, device dist.DeviceFunc) (loss, accuracy float64) {
	var out bytes.Buffer
	require.NoError(t, run(&train.Options{Device: device}, 3, "float32", &out))
	_, err := fmt.Sscanf(out.String(), "step 0  loss %f\ntest accuracy %f%%\n", &loss, &accuracy)
	require.NoError(t, err, out.String())
	return loss, accuracy
}

func TestCUDA(t *testing.T) {
	wantLoss, want := output(t, nil)
	require.Greater(t, want, 15.0, "it has learnt something")
	loss, accuracy := output(t, disttest.CUDA(t, emu.Config{Devices: 1}))
	require.InDelta(t, wantLoss, loss, 2e-4)
	require.InDelta(t, want, accuracy, 0.1)
}
