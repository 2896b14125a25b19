package kernel

import (
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
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

func TestCRC32C(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	data := make([]byte, 3<<20+1000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for _, s := range isas {
		t.Run(s.name, func(t *testing.T) { withISA(s, func() { testCRC32C(t, rng, data) }) })
	}
	require.Equal(t, uint32(0xe3069283), CRC32C(0, []byte("123456789")))
	require.Equal(t, uint32(0x8a9136aa), CRC32C(0, make([]byte, 32))) // RFC 3720, appendix B.4
}

func testCRC32C(t *testing.T, rng *rand.Rand, data []byte) {
	check := func(lo, hi int) {
		crc := rng.Uint32()
		require.Equal(t, crc32.Update(crc, castagnoli, data[lo:hi]), CRC32C(crc, data[lo:hi]), "bytes %d to %d", lo, hi)
	}
	for n := range 2 * crcFrom {
		check(n%67, n%67+n)
	}
	for range 200 {
		lo := rng.IntN(1000)
		check(lo, lo+rng.IntN(200_000))
	}
	check(0, len(data))
	check(3, 3<<20)
}

func BenchmarkCRC32C(b *testing.B) {
	p := make([]byte, 256<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		CRC32C(0, p)
	}
}

func convert[D, S Number](src ...S) []D {
	dst := make([]D, len(src))
	Convert(dst, src)
	return dst
}

func TestConvertFloatToInt(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	x := []float64{nan, inf, -inf, 1.9, -1.9, -0.5, 255.9, 256, 2147483647.5, -2147483648.5, 1e19, -1e19, 1 << 53}
	assert.Equal(t, []int32{0, math.MaxInt32, math.MinInt32, 1, -1, 0, 255, 256, math.MaxInt32, math.MinInt32,
		math.MaxInt32, math.MinInt32, math.MaxInt32}, convert[int32](x...))
	assert.Equal(t, []int64{0, math.MaxInt64, math.MinInt64, 1, -1, 0, 255, 256, 2147483647, -2147483648,
		math.MaxInt64, math.MinInt64, 1 << 53}, convert[int64](x...))
	assert.Equal(t, []uint8{0, 255, 0, 1, 0, 0, 255, 255, 255, 0, 255, 0, 255}, convert[uint8](x...))
	f := []float32{float32(nan), float32(inf), -7.7, 2147483520, 2147483648, -2147483648}
	assert.Equal(t, []int32{0, math.MaxInt32, -7, 2147483520, math.MaxInt32, math.MinInt32}, convert[int32](f...))
	assert.Equal(t, []uint8{0, 255, 0, 255, 255, 0}, convert[uint8](f...))
}

func TestConvertOther(t *testing.T) {
	assert.Equal(t, []int32{-1, 5}, convert[int32]([]int64{1<<40 - 1, 5}...), "narrowing keeps the low bits")
	assert.Equal(t, []uint8{255, 1}, convert[uint8]([]int32{-1, 257}...))
	assert.Equal(t, []int64{255, 0}, convert[int64]([]uint8{255, 0}...))
	assert.Equal(t, []float32{16777216, 16777220}, convert[float32]([]int64{16777217, 16777219}...), "ties to even")
	assert.Equal(t, []float32{float32(math.Inf(1)), 0.1}, convert[float32](1e300, 0.1))
	assert.Equal(t, []float64{float64(float32(0.1))}, convert[float64](float32(0.1)))
	same := []float64{1, 2, 3}
	Convert(same, same)
	assert.Equal(t, []float64{1, 2, 3}, same)
	for _, n := range testSizes {
		x := normals[float32](n, 1)
		assert.Equal(t, x, convert[float32](convert[float64](x...)...))
	}
}

func TestConvertBool(t *testing.T) {
	b := []bool{true, false, true}
	got := make([]float32, 3)
	FromBool(got, b)
	assert.Equal(t, []float32{1, 0, 1}, got)
	back := make([]bool, 5)
	ToBool(back, []float64{0.5, 0, math.Copysign(0, -1), math.NaN(), -3})
	assert.Equal(t, []bool{true, false, false, true, true}, back)
}
