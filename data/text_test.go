package data

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

func TestText(t *testing.T) {
	tokens := []int{10, 11, 12, 13, 14, 15, 16}
	for _, c := range []struct {
		length, stride int
		first          []int // tokens of the windows
	}{{3, 1, []int{10, 11, 12, 13}}, {3, 3, []int{10, 13}}, {2, 3, []int{10, 13}}, {6, 1, []int{10}}, {6, 6, []int{10}},
		{1, 1, []int{10, 11, 12, 13, 14, 15}}} {
		ds, err := NewText(tokens, c.length, c.stride)
		require.NoError(t, err)
		require.Equal(t, len(c.first), ds.Len())
		x, y := tensor.FromSlice(make([]int64, c.length), 1, c.length), tensor.FromSlice(make([]int64, c.length), 1, c.length)
		for i, first := range c.first {
			require.NoError(t, ds.Batch([]int{i}, x, y))
			for j := range c.length {
				require.Equal(t, int64(first+j), tensor.Data[int64](x)[j])
				require.Equal(t, int64(first+j+1), tensor.Data[int64](y)[j])
			}
		}
	}
	for want, c := range map[string][3]int{"a text of 7 tokens is too short": {7, 1}, "windows of 0 tokens": {0, 1}, "every 0": {1, 0}} {
		_, err := NewText(tokens, c[0], c[1])
		require.ErrorContains(t, err, want)
	}
	for _, bad := range []int{-1, 1 << 31} {
		_, err := NewText([]int{1, bad, 2}, 1, 1)
		require.ErrorContains(t, err, "token 1 is")
	}
}
