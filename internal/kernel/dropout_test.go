package kernel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wholeRows describes an unsharded tensor of rows with elems elements, cols in the last dimension.
func wholeRows(elems, cols int) Rows {
	return Rows{Stride: elems, Elems: elems, Cols: cols, Line: cols}
}

func TestDropout(t *testing.T) { bothFloats(t, testDropout[float32], testDropout[float64]) }

func testDropout[T Float](t *testing.T) {
	const n, p = 40000, 0.3
	x, m := normals[T](n, 1), wholeRows(n, n)
	dst := make([]T, n)
	Dropout(dst, x, p, 7, m, 0, n)
	kept := 0
	for i, v := range dst {
		if v != 0 {
			kept++
			require.Equal(t, x[i]*T(1/(1-p)), v)
		}
	}
	assert.InDelta(t, 1-p, float64(kept)/n, 0.01)
	requireCutsAgree(t, 301, 301, func(dst []T, lo, hi int) { Dropout(dst, x, p, 7, wholeRows(301, 43), lo, hi) }, "dropout")
	other := make([]T, n)
	Dropout(other, x, p, 8, m, 0, n)
	assert.NotEqual(t, dst, other, "another key")
	Dropout(other, x, 0, 7, m, 0, n)
	assert.Equal(t, x, other, "p = 0 keeps all")
	Dropout(other, x, 1, 7, m, 0, n)
	assert.Equal(t, make([]T, n), other, "p = 1 drops all")
	Dropout(x, x, p, 7, m, 0, n)
	assert.Equal(t, dst, x, "in place")
}

// TestDropoutWords compares the mask with the generator's words, which other
// implementations must use, too.
func TestDropoutWords(t *testing.T) {
	x, dst := make([]float64, 8), make([]float64, 8)
	Fill(x, 1)
	Dropout(dst, x, 0.5, 0, wholeRows(8, 8), 0, 8)
	for i := range dst {
		word := uint32(Bits(0, uint64(i/2)) >> (32 * (i % 2)))
		require.Equal(t, word >= 1<<31, dst[i] == 2, "element %d", i)
	}
}

// TestDropoutLines cuts a [4, 5, 6] tensor by rows, lines and columns at once.
func TestDropoutLines(t *testing.T) {
	const batch, lines, full = 4, 5, 6
	for _, c := range [][4]int{{0, 5, 0, 6}, {1, 3, 0, 6}, {2, 5, 1, 4}, {4, 5, 5, 6}} { // lines, columns
		cols := c[3] - c[2]
		m := Rows{First: (lines+c[0])*full + c[2], Stride: 2 * lines * full, Elems: (c[1] - c[0]) * cols, Cols: cols, Line: full}
		ones, whole, local := make([]float32, batch*lines*full), make([]float32, batch*lines*full), make([]float32, 2*m.Elems)
		Fill(ones, 1)
		Dropout(whole, ones, 0.4, 3, wholeRows(lines*full, full), 0, len(whole))
		Dropout(local, ones, 0.4, 3, m, 0, len(local))
		e := 0
		for _, row := range []int{1, 3} {
			for l := c[0]; l < c[1]; l++ {
				for k := c[2]; k < c[3]; k++ {
					require.Equal(t, whole[(row*lines+l)*full+k], local[e], "%+v element %d", m, e)
					e++
				}
			}
		}
	}
}

// TestDropoutRuns cuts a [3, 9, 4] tensor by lines, of which two runs are left, and columns.
func TestDropoutRuns(t *testing.T) {
	const lines, full = 9, 4
	for _, c := range [][4]int{{0, 1, 7, 1}, {2, 3, 2, 2}, {1, 2, 1, 5}} { // first, first run, skipped, second run
		for _, cols := range [][2]int{{0, 4}, {1, 3}, {3, 4}} {
			n, width := c[1]+c[3], cols[1]-cols[0]
			m := Rows{First: c[0]*full + cols[0], Stride: lines * full, Elems: n * width, Cols: width, Line: full,
				Break: c[1] * width, Jump: c[2] * full}
			ones, whole, local := make([]float32, 3*lines*full), make([]float32, 3*lines*full), make([]float32, 3*m.Elems)
			Fill(ones, 1)
			Dropout(whole, ones, 0.4, 3, wholeRows(lines*full, full), 0, len(whole))
			Dropout(local, ones, 0.4, 3, m, 0, len(local))
			for e, v := range local {
				row, line := e/m.Elems, c[0]+e%m.Elems/width
				if e%m.Elems/width >= c[1] {
					line += c[2]
				}
				g := (row*lines+line)*full + cols[0] + e%width
				require.Equal(t, g, m.Global(e))
				require.Equal(t, whole[g], v, "%+v element %d", m, e)
			}
			requireCutsAgree(t, len(local), len(local), func(dst []float32, lo, hi int) { Dropout(dst, ones, 0.4, 3, m, lo, hi) }, "dropout")
		}
	}
}

// TestDropoutSharded cuts a [6, 5, 12] tensor by rows (contiguous and interleaved) and by columns at once.
func TestDropoutSharded(t *testing.T) {
	const batch, seq, full = 6, 5, 12
	n := batch * seq * full
	ones, whole := make([]float32, n), make([]float32, n)
	Fill(ones, 1)
	Dropout(whole, ones, 0.4, 3, wholeRows(seq*full, full), 0, n)
	for _, cols := range []int{1, 3, 4, 12} {
		for _, rows := range []struct{ first, stride, count int }{{0, 1, 6}, {0, 1, 3}, {3, 1, 3}, {0, 2, 3}, {1, 2, 3}, {2, 3, 2}} {
			for col := 0; col < full; col += cols {
				m := Rows{First: rows.first*seq*full + col, Stride: rows.stride * seq * full, Elems: seq * cols, Cols: cols, Line: full}
				local := make([]float32, rows.count*seq*cols)
				Dropout(local, ones, 0.4, 3, m, 0, len(local))
				e := 0
				for r := range rows.count {
					for s := range seq {
						for c := range cols {
							g := ((rows.first+r*rows.stride)*seq+s)*full + col + c
							require.Equal(t, g, m.Global(e))
							require.Equal(t, whole[g], local[e], "%+v element %d", m, e)
							e++
						}
					}
				}
			}
		}
	}
}

// TestDropoutSkip cuts rows, of which lines and columns are missing, anywhere.
func TestDropoutSkip(t *testing.T) {
	for _, m := range []Rows{{First: 44, Stride: 70, Elems: 12, Cols: 4, Line: 7}, {First: 80, Stride: 24, Elems: 12, Cols: 4, Line: 4},
		{First: 24, Stride: 36, Elems: 12, Cols: 4, Line: 4}, wholeRows(12, 4)} {
		ones, whole := make([]float32, 60), make([]float32, 60)
		Fill(ones, 1)
		Dropout(whole, ones, 0.4, 3, m, 0, len(whole))
		for lo := range len(whole) {
			for _, hi := range []int{lo, min(lo+5, 60), min(lo+31, 60), 60} {
				m, part := m, make([]float32, hi-lo)
				m.Skip = lo
				requireCutsAgree(t, hi-lo, hi-lo, func(dst []float32, lo, hi int) { Dropout(dst, ones, 0.4, 3, m, lo, hi) }, "dropout")
				Dropout(part, ones, 0.4, 3, m, 0, len(part))
				require.Equal(t, whole[lo:hi], part, "%+v", m)
			}
		}
	}
}
