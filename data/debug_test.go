package data

import (
	"context"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/stretchr/testify/require"
)

// In debug mode, a batch that is kept longer than its step is NaN before the loader writes another one there.
func TestKeptBatchIsPoisoned(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") != "1" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKeptBatchIsPoisoned$")
		cmd.Env = append(os.Environ(), "RINGO_DEBUG=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	l := NewLoader(numbers(10), Config{Batch: 4})
	var kept Batch
	for i, b := range l.Epoch(context.Background(), 0) {
		require.Equal(t, float64(4*i), tensor.Floats(b.X)[0])
		kept = b
	}
	require.True(t, math.IsNaN(tensor.Floats(kept.X)[0]))
	require.Equal(t, int32(-1), tensor.Data[int32](kept.Y)[0])
}
