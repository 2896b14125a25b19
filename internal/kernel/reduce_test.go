package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reduceShapes are [outer, n, inner].
func reduceShapes() [][3]int {
	shapes := [][3]int{{2, 3, 70}, {3, 300, 1}, {2, 300, 5}, {1, 129, 130}, {5, 1, 4}, {1, 1000, 1}, {0, 4, 3}, {2, 4, 0}}
	for _, n := range testSizes {
		shapes = append(shapes, [3]int{2, n, 1}, [3]int{2, n, 3})
	}
	return shapes
}

// reduceNaive folds each output in float64, from 0 on.
func reduceNaive[T Number](x []T, s [3]int, f func(acc, v float64) float64) []float64 {
	out := make([]float64, s[0]*s[2])
	for j := range out {
		o, i := j/s[2], j%s[2]
		for r := range s[1] {
			out[j] = f(out[j], float64(x[(o*s[1]+r)*s[2]+i]))
		}
	}
	return out
}

func TestReduceSum(t *testing.T) {
	t.Run("float32", testReduce[float32])
	t.Run("float64", testReduce[float64])
	t.Run("int32", testReduce[int32])
	t.Run("int64", testReduce[int64])
}

func testReduce[T Number](t *testing.T) {
	for _, s := range reduceShapes() {
		size := s[0] * s[2]
		x, msg := integers[T](s[0]*s[1]*s[2], 1, -3, 4), fmt.Sprint(s)
		got := make([]T, size)
		ReduceSum(got, x, s[1], s[2], 0, size)
		assert.Equal(t, reduceNaive(x, s, func(a, v float64) float64 { return a + v }), float64s(got), msg)
	}
}

// TestReduceCuts uses real numbers, for which another order of additions gives
// other bits.
func TestReduceCuts(t *testing.T) { bothFloats(t, testReduceCuts[float32], testReduceCuts[float64]) }

func testReduceCuts[T Float](t *testing.T) {
	for _, s := range reduceShapes() {
		size, x, msg := s[0]*s[2], normals[T](s[0]*s[1]*s[2], 1), fmt.Sprint(s)
		requireCutsAgree(t, size, size, func(dst []T, lo, hi int) { ReduceSum(dst, x, s[1], s[2], lo, hi) }, "sum "+msg)
		got := make([]T, size)
		ReduceSum(got, x, s[1], s[2], 0, size)
		requireNear(t, reduceNaive(x, s, func(a, v float64) float64 { return a + v }), got, 1e-5, 1e-13, msg)
		if s[1] > 0 {
			requireCutsAgree(t, size, size, func(dst []T, lo, hi int) { ReduceMax(dst, nil, x, s[1], s[2], lo, hi) }, "max "+msg)
			requireCutsAgree(t, size, size, func(dst []int64, lo, hi int) {
				ReduceMin(make([]T, size), dst, x, s[1], s[2], lo, hi)
			}, "argmin "+msg)
		}
	}
}

// TestSumPrecision: a million float32 numbers, by rows and by columns; with one
// accumulator the error would be 1e-3.
func TestSumPrecision(t *testing.T) {
	const n = 1 << 20
	x := make([]float32, n)
	fillUniform(x, 1, 0, 0, 1)
	want := 0.0
	for _, v := range x {
		want += float64(v)
	}
	got := make([]float32, 1)
	ReduceSum(got, x, n, 1, 0, 1)
	assert.InEpsilon(t, want, float64(got[0]), 2e-7)
	ColSum(got, x, n, 1, 1, 0, 1, false)
	assert.InEpsilon(t, want, float64(got[0]), 5e-7)
	assert.InEpsilon(t, reduceNaive(x, [3]int{1, n, 1}, func(a, v float64) float64 { return a + v*v })[0], SumSquares(x), 1e-12)
}

func TestReduceExtreme(t *testing.T) {
	t.Run("float32", testExtreme[float32])
	t.Run("float64", testExtreme[float64])
	t.Run("int64", testExtreme[int64])
	t.Run("uint8", testExtreme[uint8])
}

func testExtreme[T Number](t *testing.T) {
	for _, s := range reduceShapes() {
		if s[1] == 0 {
			continue
		}
		size := s[0] * s[2]
		x := operands[T](s[0]*s[1]*s[2], 1) // with ties, NaN and infinities
		for name, f := range map[string]func(dst []T, idx []int64, x []T, n, inner, lo, hi int){"max": ReduceMax[T], "min": ReduceMin[T]} {
			value, bare, idx := make([]T, size), make([]T, size), make([]int64, size)
			f(value, idx, x, s[1], s[2], 0, size)
			f(bare, nil, x, s[1], s[2], 0, size)
			requireSame(t, value, bare, "without positions")
			for j := range size {
				at := func(r int) float64 { return float64(x[(j/s[2]*s[1]+r)*s[2]+j%s[2]]) }
				best := 0
				for r := range s[1] {
					v, b := at(r), at(best)
					if b == b && (v != v || name == "max" && v > b || name == "min" && v < b) {
						best = r
					}
				}
				require.Equal(t, int64(best), idx[j], "%s %v output %d", name, s, j)
				requireSame(t, []T{T(at(best))}, value[j:j+1], name)
			}
		}
	}
}

func TestColSum(t *testing.T) { bothFloats(t, testColSum[float32], testColSum[float64]) }

func testColSum[T Float](t *testing.T) {
	for _, rows := range testSizes {
		const cols, ld = 70, 73
		x := normals[T](rows*ld, 1)
		start := normals[T](cols, 2)
		for _, acc := range []bool{false, true} {
			want := make([]float64, cols)
			for j := range want {
				if acc {
					want[j] = float64(start[j])
				}
				for r := range rows {
					want[j] += float64(x[r*ld+j])
				}
			}
			got := clone(start)
			ColSum(got, x, rows, cols, ld, 0, cols, acc)
			requireNear(t, want, got, 2e-5, 1e-13, fmt.Sprint(rows, acc))
			requireCutsAgree(t, cols, cols, func(dst []T, lo, hi int) {
				copy(dst[lo:hi], start[lo:hi])
				ColSum(dst, x, rows, cols, ld, lo, hi, acc)
			}, "ColSum")
		}
	}
}

func TestSumSquares(t *testing.T) {
	for _, n := range testSizes {
		x, want := normals[float64](n, 1), 0.0
		for _, v := range x {
			want += v * v
		}
		assert.InDelta(t, want, SumSquares(x), 1e-12*(1+want))
	}
	assert.True(t, math.IsNaN(SumSquares([]float32{1, float32(math.NaN())})))
}

// Kernels that widen rows of bfloat16 have the bits of those for float32 between
// conversions.
func TestColumnSumsOfBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, s := range [][2]int{{0, 3}, {1, 1}, {7, 40}, {300, sumTile + 8}} {
		rows, cols := s[0], s[1]
		random := func(n int) (x []BF16, wide []float32) {
			x, wide = make([]BF16, n), make([]float32, n)
			for i := range x {
				x[i] = ToBF16(r.Float32() - 0.5)
			}
			BF16ToF32(wide, x)
			return x, wide
		}
		x, wideX := random(rows * cols)
		g, wideG := random(rows * cols)
		_, mean := random(rows)
		_, rstd := random(rows)
		for _, acc := range []bool{false, true} {
			for name, f := range map[string]struct {
				wide func(dst []float32)
				half func(dst []BF16, lo, hi int)
			}{
				"colsum": {func(dst []float32) { ColSum(dst, wideX, rows, cols, cols, 0, cols, acc) },
					func(dst []BF16, lo, hi int) { ColSumBF16(dst, x, rows, cols, cols, lo, hi, acc) }},
				"layer norm": {func(dst []float32) { LayerNormGradW(dst, nil, wideG, wideX, mean, rstd, rows, cols, 0, cols, acc) },
					func(dst []BF16, lo, hi int) { NormGradWBF16(dst, g, x, mean, rstd, rows, cols, lo, hi, acc) }},
				"rms norm": {func(dst []float32) { RMSNormGradW(dst, wideG, wideX, rstd, rows, cols, 0, cols, acc) },
					func(dst []BF16, lo, hi int) { NormGradWBF16(dst, g, x, nil, rstd, rows, cols, lo, hi, acc) }},
			} {
				dst, want := random(cols)
				f.wide(want)
				rounded := make([]BF16, cols)
				F32ToBF16(rounded, want)
				f.half(dst, 0, cols/2)
				f.half(dst, cols/2, cols)
				require.Equal(t, rounded, dst, "%s of %v, acc %v", name, s, acc)
			}
		}
	}
}
