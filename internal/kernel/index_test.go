package kernel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckIndex(t *testing.T) {
	assert.Equal(t, -1, CheckIndex([]int64{0, 2, 1}, 3))
	assert.Equal(t, 1, CheckIndex([]int64{0, 3, -1}, 3))
	assert.Equal(t, 0, CheckIndex([]int64{-1}, 3))
	assert.Equal(t, -1, CheckIndex(nil, 0))
}

func TestGatherScatterRows(t *testing.T) {
	t.Run("float32", testRowsByIndex[float32])
	t.Run("float64", testRowsByIndex[float64])
	t.Run("int64", testRowsByIndex[int64])
}

func testRowsByIndex[T Number](t *testing.T) {
	const vocab, rows = 5, 13 // more rows than entries: indices repeat
	for _, cols := range testSizes {
		table, src := integers[T](vocab*cols, 1, -50, 50), integers[T](rows*cols, 2, -50, 50)
		idx := integers[int64](rows, 3, 0, vocab)
		want, sums := make([]T, rows*cols), clone(table)
		for r, k := range idx {
			for c := range cols {
				want[r*cols+c] = table[int(k)*cols+c]
				sums[int(k)*cols+c] += src[r*cols+c]
			}
		}
		msg := fmt.Sprint("cols ", cols)
		got := make([]T, rows*cols)
		GatherRows(got, table, idx, cols, 0, rows)
		require.Equal(t, want, got, msg)
		requireCutsAgree(t, rows, rows*cols, func(dst []T, lo, hi int) { GatherRows(dst, table, idx, cols, lo, hi) }, msg)
		got = clone(table)
		ScatterAddRows(got, src, idx, cols, 0, cols)
		require.Equal(t, sums, got, msg)
	}
}

// TestScatterAddCuts: real numbers whose sums depend on the order of additions.
func TestScatterAddCuts(t *testing.T) {
	const vocab, rows, cols, inner = 3, 200, 70, 4
	src, idx := normals[float32](rows*cols, 1), integers[int64](rows*cols, 2, 0, vocab)
	requireCutsAgree(t, cols, vocab*cols, func(dst []float32, lo, hi int) {
		ScatterAddRows(dst, src, idx[:rows], cols, lo, hi)
	}, "ScatterAddRows")
	requireCutsAgree(t, 10, 10*vocab*inner, func(dst []float32, lo, hi int) {
		ScatterAddDim(dst, src, idx, vocab, 20, inner, lo, hi)
	}, "ScatterAddDim")
}

func TestGatherScatterDim(t *testing.T) {
	t.Run("float32", testDimByIndex[float32])
	t.Run("int32", testDimByIndex[int32])
}

func testDimByIndex[T Number](t *testing.T) {
	for _, s := range [][4]int{{3, 5, 2, 7}, {2, 2, 9, 1}, {1, 1, 1, 1}, {4, 3, 0, 2}, {0, 3, 2, 2}} { // outer, n, m, inner
		outer, n, m, inner := s[0], s[1], s[2], s[3]
		x, src := integers[T](outer*n*inner, 1, -50, 50), integers[T](outer*m*inner, 2, -50, 50)
		idx := integers[int64](outer*m*inner, 3, 0, n)
		want, sums := make([]T, outer*m*inner), clone(x)
		for o := range outer {
			for j := range m {
				for i := range inner {
					e := (o*m+j)*inner + i
					at := (o*n+int(idx[e]))*inner + i
					want[e] = x[at]
					sums[at] += src[e]
				}
			}
		}
		requireCutsAgree(t, outer, len(want), func(dst []T, lo, hi int) { GatherDim(dst, x, idx, n, m, inner, lo, hi) }, "GatherDim")
		got := make([]T, len(want))
		GatherDim(got, x, idx, n, m, inner, 0, outer)
		require.Equal(t, want, got, "%v", s)
		got = clone(x)
		ScatterAddDim(got, src, idx, n, m, inner, 0, outer)
		require.Equal(t, sums, got, "%v", s)
	}
}
