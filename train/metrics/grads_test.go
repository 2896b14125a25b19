package metrics_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/train/metrics"
)

// Steps are read as they were written, NaN too; a line that a crash cut short is an error.
func TestGrads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grads")
	loss := metrics.Number(2.5)
	a := metrics.GradStep{Step: 1, Loss: &loss,
		Grads: []metrics.GradNorm{{Name: "w", Shape: []int{2, 3}, Norm: 0.1}, {Name: "b", Shape: []int{}, Norm: metrics.Number(math.Inf(1))}}}
	b := metrics.GradStep{Step: 2, Grads: []metrics.GradNorm{}}
	require.NoError(t, metrics.AppendGrads(file))
	require.NoError(t, metrics.AppendGrads(file, a))
	require.NoError(t, metrics.AppendGrads(file, b))
	got, err := metrics.ReadGrads(file)
	require.NoError(t, err)
	require.Equal(t, []metrics.GradStep{a, b}, got)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text[:len(text)-3], 0o666))
	_, err = metrics.ReadGrads(file)
	require.ErrorContains(t, err, "grads: behind 1 steps: unexpected EOF")
}
