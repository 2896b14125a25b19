package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
