package kernel

import "math"

// Float8 is a format of 8-bit floats (Micikevicius et al. 2022, https://arxiv.org/abs/2209.05433).
type Float8 uint8

// The formats, which PyTorch calls float8_e4m3fn and float8_e5m2.
const (
	E4M3 Float8 = iota // 4 exponent bits, 3 mantissa bits, no infinity
	E5M2               // 5 exponent bits, 2 mantissa bits
)

// float8s are the mantissa bits, the exponent bias, and the largest number of each
// format, as a code and as the bits of a float32.
var float8s = [...]struct{ mantissa, bias, most, mostBits uint32 }{
	E4M3: {3, 7, 0x7E, 0x43E00000},  // 448
	E5M2: {2, 15, 0x7B, 0x47600000}, // 57344
}

// Max is the largest finite number of the format.
func (f Float8) Max() float32 { return math.Float32frombits(float8s[f].mostBits) }

// Code rounds x to the nearest number of the format, ties to even, and returns its
// bits. Magnitudes above Max, infinity too, become Max; NaN stays NaN.
func (f Float8) Code(x float32) uint8 {
	u, t := math.Float32bits(x), &float8s[f]
	sign, mag, shift := u>>24&0x80, u&0x7FFFFFFF, 23-t.mantissa
	switch {
	case mag > 0x7F800000:
		return uint8(sign | 0x7F)
	case mag >= t.mostBits:
		return uint8(sign | t.most)
	case mag >= (128-t.bias)<<23: // normal result; rounding may carry into the exponent
		return uint8(sign | (mag-(127-t.bias)<<23+1<<(shift-1)-1+mag>>shift&1)>>shift)
	default: // subnormal: adding a power of 2 lets the hardware round to a multiple of the smallest number
		step := (128 - t.bias + shift) << 23
		return uint8(sign | (math.Float32bits(math.Float32frombits(mag)+math.Float32frombits(step)) - step))
	}
}

// Float32 returns the exact value of a code.
func (f Float8) Float32(code uint8) float32 {
	t := &float8s[f]
	sign, mag, shift := uint32(code&0x80)<<24, uint32(code&0x7F), 23-t.mantissa
	special := mag > t.most
	switch {
	case special && f == E5M2 && mag == 0x7C:
		return math.Float32frombits(sign | 0x7F800000)
	case special:
		return math.Float32frombits(sign | 0x7FC00000)
	case mag>>t.mantissa != 0:
		return math.Float32frombits(sign | (mag<<shift + (127-t.bias)<<23))
	}
	return math.Float32frombits(sign | math.Float32bits(float32(mag)*math.Float32frombits((128-t.bias-t.mantissa)<<23)))
}

// Round8 rounds src to numbers of the format, as [Float8.Code] does.
func Round8(dst, src []float32, f Float8) {
	for i, x := range src[:len(dst)] {
		dst[i] = f.Float32(f.Code(x))
	}
}
