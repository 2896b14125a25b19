package data

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// Each row of the tensors comes once, on any number of ranks, with the tensors on the host or on a device.
func TestTensors(t *testing.T) {
	const n = 11
	xs, ys := make([]float64, 2*n), make([]int32, n)
	for i := range n {
		xs[2*i], xs[2*i+1], ys[i] = float64(i), -float64(i), int32(i)
	}
	x, y := tensor.FromSlice(xs, n, 2), tensor.FromSlice(ys, n)
	dev := tensortest.NewRemote(t, 1)
	for _, of := range []struct{ x, y tensor.Tensor }{{x, y}, {tensor.ToDevice(dev, x), tensor.ToDevice(dev, y)}} {
		ds, err := NewTensors(of.x, of.y)
		require.NoError(t, err)
		assert.Equal(t, "11 rows of float64[2] and int32[]", ds.String())
		for _, ranks := range []int{1, 2, 3} {
			want := naive(n, 4, true, 0, 1)
			got := make([][]int, len(want))
			for r := range ranks {
				samples, _ := epochOf(t, NewLoader(ds, Config{Batch: 4, Shuffle: true, Sharder: rankOf{r, ranks}}), 1)
				for i := range samples {
					got[i] = append(got[i], samples[i]...)
				}
			}
			assert.Equal(t, want, got, "%d ranks", ranks)
		}
	}
}

// A batch tensor with more or fewer rows than requested is an error.
func TestTensorsBatchOfAnotherSize(t *testing.T) {
	ds, err := NewTensors(tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2), tensor.FromSlice([]int64{5, 6}, 2))
	require.NoError(t, err)
	host := cpu.New(1)
	x, y := tensor.New(host, tensor.Float32, 1, 3), tensor.New(host, tensor.Int64, 1)
	require.EqualError(t, ds.Batch([]int{1}, x, y), "1 rows of float32[2] and int64[] do not fit float32[1,3] and int64[1]")
}
