package blas_test

import (
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda/blas"
)

func size(t blas.Type) int { return map[blas.Type]int{blas.Float32: 4, blas.Float64: 8}[t] | b2(t) }

func b2(t blas.Type) int {
	if t == blas.BFloat16 || t == blas.Float16 {
		return 2
	}
	return 0
}

func bytesOf[T any](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

func encode(t blas.Type, v []float64) []byte {
	switch t {
	case blas.Float64:
		return bytesOf(v)
	case blas.Float32:
		out := make([]float32, len(v))
		for i, x := range v {
			out[i] = float32(x)
		}
		return bytesOf(out)
	}
	out := make([]uint16, len(v))
	for i, x := range v {
		out[i] = half(t, x)
	}
	return bytesOf(out)
}

func decode(t blas.Type, b []byte) []float64 {
	out := make([]float64, len(b)/size(t))
	for i := range out {
		p := unsafe.Pointer(&b[i*size(t)])
		switch t {
		case blas.Float64:
			out[i] = *(*float64)(p)
		case blas.Float32:
			out[i] = float64(*(*float32)(p))
		default:
			out[i] = fromHalf(t, *(*uint16)(p))
		}
	}
	return out
}

func rounded(t blas.Type, x float64) float64 { return decode(t, encode(t, []float64{x}))[0] }

// half truncates: the operands of this test need no rounding.
func half(t blas.Type, x float64) uint16 {
	u := math.Float32bits(float32(x))
	if t == blas.BFloat16 {
		return uint16(u >> 16)
	}
	exp := int(u>>23&0xff) - 127 + 15
	if exp <= 0 {
		return uint16(u >> 16 & 0x8000)
	}
	return uint16(u>>16&0x8000) | uint16(min(exp, 31))<<10 | uint16(u>>13&0x3ff)
}

func fromHalf(t blas.Type, h uint16) float64 {
	if t == blas.BFloat16 {
		return float64(math.Float32frombits(uint32(h) << 16))
	}
	exp, frac, sign := int(h>>10&31), float64(h&0x3ff), 1-2*float64(h>>15)
	switch exp {
	case 0:
		return sign * frac * math.Pow(2, -24)
	case 31:
		return math.NaN()
	}
	return sign * (1 + frac/1024) * math.Pow(2, float64(exp-15))
}
