package fragment_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu/fragment"
)

// The figures of the PTX ISA, a line for each row that they show; "T4 a2" is lane 4 and its element a2.
const (
	figureA = `
0:  T0 a0, T0 a1, T1 a0, T1 a1, T2 a0, T2 a1, T3 a0, T3 a1, T0 a4, T0 a5, T1 a4, T1 a5, T2 a4, T2 a5, T3 a4, T3 a5
1:  T4 a0, T4 a1, T5 a0, T5 a1, T6 a0, T6 a1, T7 a0, T7 a1, T4 a4, T4 a5, T5 a4, T5 a5, T6 a4, T6 a5, T7 a4, T7 a5
7:  T28 a0, T28 a1, T29 a0, T29 a1, T30 a0, T30 a1, T31 a0, T31 a1, T28 a4, T28 a5, T29 a4, T29 a5, T30 a4, T30 a5, T31 a4, T31 a5
8:  T0 a2, T0 a3, T1 a2, T1 a3, T2 a2, T2 a3, T3 a2, T3 a3, T0 a6, T0 a7, T1 a6, T1 a7, T2 a6, T2 a7, T3 a6, T3 a7
15: T28 a2, T28 a3, T29 a2, T29 a3, T30 a2, T30 a3, T31 a2, T31 a3, T28 a6, T28 a7, T29 a6, T29 a7, T30 a6, T30 a7, T31 a6, T31 a7`
	figureB = `
0:  T0 b0, T4 b0, T8 b0, T12 b0, T16 b0, T20 b0, T24 b0, T28 b0
1:  T0 b1, T4 b1, T8 b1, T12 b1, T16 b1, T20 b1, T24 b1, T28 b1
2:  T1 b0, T5 b0, T9 b0, T13 b0, T17 b0, T21 b0, T25 b0, T29 b0
7:  T3 b1, T7 b1, T11 b1, T15 b1, T19 b1, T23 b1, T27 b1, T31 b1
8:  T0 b2, T4 b2, T8 b2, T12 b2, T16 b2, T20 b2, T24 b2, T28 b2
9:  T0 b3, T4 b3, T8 b3, T12 b3, T16 b3, T20 b3, T24 b3, T28 b3
15: T3 b3, T7 b3, T11 b3, T15 b3, T19 b3, T23 b3, T27 b3, T31 b3`
	figureD = `
0:  T0 c0, T0 c1, T1 c0, T1 c1, T2 c0, T2 c1, T3 c0, T3 c1
1:  T4 c0, T4 c1, T5 c0, T5 c1, T6 c0, T6 c1, T7 c0, T7 c1
7:  T28 c0, T28 c1, T29 c0, T29 c1, T30 c0, T30 c1, T31 c0, T31 c1
8:  T0 c2, T0 c3, T1 c2, T1 c3, T2 c2, T2 c3, T3 c2, T3 c3
15: T28 c2, T28 c3, T29 c2, T29 c3, T30 c2, T30 c3, T31 c2, T31 c3`
	// For ldmatrix, for each of the matrices: the lanes with the elements of a row,
	// two in each.
	figureLoad = `
0: T0, T1, T2, T3
1: T4, T5, T6, T7
2: T8, T9, T10, T11
3: T12, T13, T14, T15
4: T16, T17, T18, T19
5: T20, T21, T22, T23
6: T24, T25, T26, T27
7: T28, T29, T30, T31`
)

// rows yields the lines of a figure: a row's number and its columns.
func rows(t *testing.T, figure string) func(func(int, []string) bool) {
	return func(yield func(int, []string) bool) {
		for line := range strings.Lines(strings.TrimSpace(figure)) {
			number, cells, _ := strings.Cut(strings.TrimSpace(line), ":")
			row, err := strconv.Atoi(number)
			require.NoError(t, err)
			if !yield(row, strings.Split(strings.TrimSpace(cells), ", ")) {
				return
			}
		}
	}
}

func TestFigures(t *testing.T) {
	for m, f := range map[fragment.Matrix]struct{ name, figure string }{
		fragment.A: {"a", figureA}, fragment.B: {"b", figureB}, fragment.D: {"c", figureD},
	} {
		holder := map[[2]int]string{}
		for lane := range fragment.Lanes {
			for i := range m.Each() {
				row, col := m.At(lane, i)
				holder[[2]int{row, col}] = fmt.Sprintf("T%d %s%d", lane, f.name, i)
			}
		}
		height, width := m.Dims()
		require.Len(t, holder, height*width, "elements that a lane has, of %s", f.name)
		for row, cells := range rows(t, f.figure) {
			require.Len(t, cells, width)
			for col, cell := range cells {
				require.Equal(t, cell, holder[[2]int{row, col}], "%s, row %d, column %d", f.name, row, col)
			}
		}
	}
}

func TestLoaded(t *testing.T) {
	for row, lanes := range rows(t, figureLoad) {
		for i, lane := range lanes {
			for half := range 2 {
				for register := range 4 {
					var l int
					_, err := fmt.Sscanf(lane, "T%d", &l)
					require.NoError(t, err)
					m, r, c := fragment.Loaded(l, register, half, false)
					require.Equal(t, []int{register, row, 2*i + half}, []int{m, r, c}, "lane %d", l)
					m, r, c = fragment.Loaded(l, register, half, true)
					require.Equal(t, []int{register, 2*i + half, row}, []int{m, r, c}, "lane %d, transposed", l)
				}
			}
		}
	}
	// Threads 0-7 have the addresses of the first matrix's rows, threads 8-15 of the second's, and so on.
	for thread := range fragment.Lanes {
		require.Equal(t, thread, fragment.RowLane(thread/8, thread%8))
	}
}

// The d fragments of two neighbours, rounded, are an a fragment: the kernels of
// attention use this between two products.
func TestResultIsOperand(t *testing.T) {
	for lane := range fragment.Lanes {
		for i := range fragment.A.Each() {
			row, col := fragment.D.At(lane, i%4)
			wantRow, wantCol := fragment.A.At(lane, i)
			require.Equal(t, []int{wantRow, wantCol}, []int{row, col + i/4*8}, "lane %d, element %d", lane, i)
		}
	}
}
