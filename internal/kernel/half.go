package kernel

import "math"

// BF16 is a bfloat16 number: the upper half of a float32 (8 exponent bits, 7 mantissa bits).
type BF16 uint16

// F16 is an IEEE 754 binary16 number (5 exponent bits, 10 mantissa bits).
type F16 uint16

// Float32 returns the exact value of b.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds x to the nearest bfloat16, ties to even. Values beyond the largest finite number become infinite; NaN becomes
// a quiet NaN.
func ToBF16(x float32) BF16 {
	u := math.Float32bits(x)
	if x != x {
		return BF16(u>>16 | 0x40)
	}
	return BF16((u + 0x7FFF + u>>16&1) >> 16)
}

// Float32 returns the exact value of h; a NaN keeps its payload and becomes quiet.
func (h F16) Float32() float32 {
	sign, mag := uint32(h&0x8000)<<16, uint32(h&0x7FFF)
	switch {
	case mag > 0x7C00: // NaN
		return math.Float32frombits(sign | 0x7FC00000 | mag<<13)
	case mag == 0x7C00:
		return math.Float32frombits(sign | 0x7F800000)
	case mag >= 0x400: // normal: rebias the exponent by 127-15
		return math.Float32frombits(sign | (mag<<13 + 112<<23))
	default: // subnormal or zero: a multiple of 2**-24
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
	}
}

// ToF16 rounds x to the nearest binary16, ties to even, with subnormal results. Values from 65520 become infinite; NaN becomes
// a quiet NaN.
func ToF16(x float32) F16 {
	u := math.Float32bits(x)
	sign, mag := F16(u>>16&0x8000), u&0x7FFFFFFF
	switch {
	case mag > 0x7F800000:
		return sign | 0x7E00 | F16(mag>>13&0x3FF)
	case mag >= 0x47800000: // 65536 and more
		return sign | 0x7C00
	case mag >= 0x38800000: // normal result; rounding may carry into the exponent, up to infinity
		return sign | F16((mag-112<<23+0xFFF+mag>>13&1)>>13)
	default: // subnormal: adding 1/2 lets the hardware round to a multiple of 2**-24
		return sign | F16(math.Float32bits(math.Float32frombits(mag)+0.5)-0x3F000000)
	}
}

// BF16ToF32 converts src to float32, exactly.
func BF16ToF32(dst []float32, src []BF16) {
	k := vecWidenBF16(dst, src)
	dst = dst[k:]
	src = src[k:][:len(dst)]
	for i := range dst {
		dst[i] = src[i].Float32()
	}
}

// F32ToBF16 rounds src as [ToBF16] does.
func F32ToBF16(dst []BF16, src []float32) {
	k := vecRoundBF16(dst, src)
	dst = dst[k:]
	src = src[k:][:len(dst)]
	for i := range dst {
		dst[i] = ToBF16(src[i])
	}
}

// F16ToF32 converts src to float32, exactly.
func F16ToF32(dst []float32, src []F16) {
	k := vecWidenF16(dst, src)
	dst = dst[k:]
	src = src[k:][:len(dst)]
	for i := range dst {
		dst[i] = src[i].Float32()
	}
}

// F32ToF16 rounds src as [ToF16] does.
func F32ToF16(dst []F16, src []float32) {
	k := vecRoundF16(dst, src)
	dst = dst[k:]
	src = src[k:][:len(dst)]
	for i := range dst {
		dst[i] = ToF16(src[i])
	}
}

// ReLUBF16 is [ReLU] for bfloat16: a NaN becomes quiet.
func ReLUBF16(dst, x []BF16) { ReLUGradBF16(dst, x, x) }

// ReLUGradBF16 is [ReLUGrad] for bfloat16: a NaN becomes quiet.
func ReLUGradBF16(dst, g, y []BF16) {
	k := vecGateBF16(dst, g, y)
	dst = dst[k:]
	g, y = g[k:][:len(dst)], y[k:][:len(dst)]
	for i := range dst {
		v := ToBF16(g[i].Float32())
		if y[i].Float32() <= 0 {
			v = 0
		}
		dst[i] = v
	}
}
