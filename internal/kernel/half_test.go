package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// format is a 16-bit float format with m mantissa bits, with its conversions.
type format struct {
	toFloat   func(uint16) float32
	fromFloat func(float32) uint16
	m, bias   int
}

func formats() map[string]format {
	return map[string]format{
		"bf16": {func(u uint16) float32 { return BF16(u).Float32() }, func(x float32) uint16 { return uint16(ToBF16(x)) }, 7, 127},
		"f16":  {func(u uint16) float32 { return F16(u).Float32() }, func(x float32) uint16 { return uint16(ToF16(x)) }, 10, 15},
	}
}

// value decodes u by the definition of the format.
func (f format) value(u uint16) float64 {
	sign := 1.0
	if u>>15 != 0 {
		sign = -1
	}
	e, frac := int(u&0x7FFF)>>f.m, float64(u&(1<<f.m-1))
	switch {
	case e == 1<<(15-f.m)-1 && frac != 0:
		return math.NaN()
	case e == 1<<(15-f.m)-1:
		return sign * math.Inf(1)
	case e == 0:
		return sign * math.Ldexp(frac, 1-f.bias-f.m)
	}
	return sign * math.Ldexp(1+math.Ldexp(frac, -f.m), e-f.bias)
}

func TestHalfDecode(t *testing.T) {
	for name, f := range formats() {
		for u := range 1 << 16 {
			want, got := f.value(uint16(u)), f.toFloat(uint16(u))
			if math.IsNaN(want) {
				require.True(t, got != got, "%s %#x", name, u)
				back := f.fromFloat(got)
				require.True(t, math.IsNaN(f.value(back)), "%s %#x: NaN stays NaN", name, u)
				require.NotZero(t, back&(1<<(f.m-1)), "%s %#x: quiet", name, u)
				continue
			}
			if back := f.fromFloat(got); math.Float64bits(want) != math.Float64bits(float64(got)) || back != uint16(u) {
				require.Failf(t, "wrong", "%s %#x is %v, want %v, and that is %#x again", name, u, got, want, back)
			}
		}
	}
}

// TestHalfRound checks the numbers around the middle between every two neighbours of the formats.
func TestHalfRound(t *testing.T) {
	for name, f := range formats() {
		inf := uint16(1<<15-1) &^ (1<<f.m - 1)
		for u := uint16(0); u < inf; u++ {
			a, b := f.value(u), f.value(u+1)
			if u+1 == inf { // use the next power of two instead of infinity
				b = math.Ldexp(1, f.bias+1)
			}
			mid := float32(a/2 + b/2)
			even := u + u&1
			got := [4]uint16{f.fromFloat(mid), f.fromFloat(math.Nextafter32(mid, 0)), f.fromFloat(math.Nextafter32(mid, math.MaxFloat32)),
				f.fromFloat(-mid)}
			if want := [4]uint16{even, u, u + 1, even | 0x8000}; got != want {
				require.Equal(t, want, got, "%s: the tie above %#x, below it, above it, and the negative tie", name, u)
			}
		}
		assert.Equal(t, inf, f.fromFloat(math.MaxFloat32), name)
		assert.Equal(t, inf|0x8000, f.fromFloat(float32(math.Inf(-1))), name)
		assert.Equal(t, uint16(0x8000), f.fromFloat(-math.SmallestNonzeroFloat32), name)
	}
}

// TestHalfMonotone goes through float32 (all of it in the long runs): larger numbers
// do not round to smaller ones. With TestHalfRound this means that every number
// rounds to the nearest one.
func TestHalfMonotone(t *testing.T) {
	step := uint32(4099)
	if reliability.Long(t) {
		step = 1
	}
	for name, f := range formats() {
		last := uint16(0)
		for b := uint32(0); b < 0x7F800000; b += step {
			u := f.fromFloat(math.Float32frombits(b))
			if u < last {
				require.Failf(t, "not monotone", "%s at %#x: %#x after %#x", name, b, u, last)
			}
			last = u
		}
	}
}

func TestLongHalfMonotone(t *testing.T) { reliability.AsLong(t, TestHalfMonotone) }

func TestHalfSlices(t *testing.T) {
	for _, n := range testSizes {
		x := normals[float32](n, 1)
		b, h := make([]BF16, n), make([]F16, n)
		fromB, fromH := make([]float32, n), make([]float32, n)
		F32ToBF16(b, x)
		F32ToF16(h, x)
		BF16ToF32(fromB, b)
		F16ToF32(fromH, h)
		for i, v := range x {
			require.Equal(t, ToBF16(v).Float32(), fromB[i])
			require.Equal(t, ToF16(v).Float32(), fromH[i])
		}
	}
}

// ReLU and its gradient have the rounded bits of the float32 kernels, for all
// numbers. Only the sign of NaN may differ: Go's max does not keep it.
func TestReLUBF16(t *testing.T) {
	const all = 1 << 16
	x, g := make([]BF16, all), make([]BF16, all)
	for i := range x {
		x[i], g[i] = BF16(i), BF16(Bits(1, uint64(i)))
	}
	wide, wideG, want, got := make([]float32, all), make([]float32, all), make([]BF16, all), make([]BF16, all)
	BF16ToF32(wide, x)
	BF16ToF32(wideG, g)
	ReLUGrad(wideG, wideG, wide)
	ReLU(wide, wide)
	F32ToBF16(want, wide)
	same := func(name string) {
		for i := range want {
			if w, h := want[i].Float32(), got[i].Float32(); want[i] != got[i] && (w == w || h == h) {
				require.Failf(t, name, "of %#x, %#x: %#x, not %#x", x[i], g[i], got[i], want[i])
			}
		}
	}
	ReLUBF16(got, x)
	same("ReLU")
	F32ToBF16(want, wideG)
	ReLUGradBF16(got, g, x)
	same("its gradient")
}
