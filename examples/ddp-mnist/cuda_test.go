package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// TestCapturedOnCUDA: one rank on a GPU, whose steps from the third on are replays of a graph, has the losses of the CPU.
func TestCapturedOnCUDA(t *testing.T) {
	emu.Start(t, emu.Config{})
	o := short()
	o.optim = "adamw"
	want := train(t, o)
	o.device, o.trace = "cuda", filepath.Join(t.TempDir(), "trace.json")
	got := train(t, o)
	trace, err := os.ReadFile(o.trace)
	require.NoError(t, err)
	require.Equal(t, o.steps-3, strings.Count(string(trace), `"name":"graph"`))
	require.Equal(t, want.Steps, got.Steps)
	require.InEpsilon(t, want.FinalLoss, got.FinalLoss, 1e-3)
	require.InDelta(t, want.TestAccuracy, got.TestAccuracy, 0.01)
}
