package inspect_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// Values of two types are compared element by element, also in a tensor that is read in several chunks.
func TestDiffTypes(t *testing.T) {
	const n = 300_000 // 1.2 and 2.4 MB
	write := func(d safetensors.DType, values any) string {
		h, err := safetensors.New([]safetensors.Tensor{{Name: "w", DType: d, Shape: []int{n}}}, nil)
		require.NoError(t, err)
		b, err := binary.Append(h.Encode(), binary.LittleEndian, values)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "a.safetensors")
		require.NoError(t, os.WriteFile(path, b, 0o666))
		return path
	}
	single, double := make([]float32, n), make([]float64, n)
	for i := range n {
		single[i], double[i] = float32(i), float64(i)
	}
	double[n-1] += 2
	for _, paths := range [][2]string{{write("F32", single), write("F64", double)}, {write("F64", double), write("F32", single)}} {
		d, err := inspect.Diff(t.Context(), paths[0], paths[1], nil)
		require.NoError(t, err)
		require.Len(t, d.Structure, 1)
		require.Len(t, d.Tensors, 1)
		require.Equal(t, []float64{1, n, 2}, []float64{float64(d.Tensors[0].Elements), float64(d.Tensors[0].Of), d.Tensors[0].Max})
	}
}
