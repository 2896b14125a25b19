package zeropp

import (
	"encoding/binary"
	"math"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// blockLen is the number of elements with a scale of their own.
const blockLen = 256

func blocks(n int) int { return (n + blockLen - 1) / blockLen }

// Size8 returns the bytes of n numbers in 8 bits: the scales of all blocks, then the integers.
func Size8(n int) int { return 4*blocks(n) + n }

// Size4 returns the bytes of n numbers in 4 bits: the same, but two integers in a byte.
func Size4(n int) int { return 4*blocks(n) + (n+1)/2 }

// The operations. Encode8 and Encode4 write floats as bytes, Decode8 bytes as floats. Add4 adds the floats of bytes to what is there.
var (
	Encode8 = register("fsdp_quantize", encode8[float32], encode8[float64])
	Decode8 = register("fsdp_dequantize", decode8[float32], decode8[float64])
	Encode4 = register("fsdp_quantize4", encode4[float32], encode4[float64])
	Add4    = register("fsdp_add4", add4[float32], add4[float64])
)

func register(name string, single, double tensor.Kernel) tensor.Op {
	kernels := [tensor.NumDTypes]tensor.Kernel{tensor.Float32: single, tensor.Float64: double}
	return cpu.Register(tensor.Register(tensor.OpSpec{Name: name, Const: true}), kernels)
}

func encode8[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[uint8](a, 0), tensor.Operand[T](a, 1)
	scales, codes := dst[:4*blocks(len(src))], dst[4*blocks(len(src)):]
	for b := range blocks(len(src)) {
		block := src[b*blockLen : min((b+1)*blockLen, len(src))]
		inverse := putScale(scales[4*b:], scaleOf(block, 127))
		for i, v := range block {
			codes[b*blockLen+i] = byte(int8(math.RoundToEven(float64(v) * inverse)))
		}
	}
}

// putScale writes a scale, and returns what to multiply by.
func putScale(to []byte, scale float32) (inverse float64) {
	binary.LittleEndian.PutUint32(to, math.Float32bits(scale))
	if scale > 0 {
		inverse = 1 / float64(scale)
	}
	return inverse
}

func encode4[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[uint8](a, 0), tensor.Operand[T](a, 1)
	scales, codes := dst[:4*blocks(len(src))], dst[4*blocks(len(src)):]
	clear(codes)
	for b := range blocks(len(src)) {
		block := src[b*blockLen : min((b+1)*blockLen, len(src))]
		inverse := putScale(scales[4*b:], scaleOf(block, 7))
		for i, v := range block {
			code := byte(int8(math.RoundToEven(float64(v) * inverse)))
			codes[(b*blockLen+i)/2] |= code & 15 << (i % 2 * 4)
		}
	}
}

func add4[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[T](a, 0), tensor.Operand[uint8](a, 1)
	scales, codes := src[:4*blocks(len(dst))], src[4*blocks(len(dst)):]
	for b := range blocks(len(dst)) {
		scale := T(math.Float32frombits(binary.LittleEndian.Uint32(scales[4*b:])))
		for i := b * blockLen; i < min((b+1)*blockLen, len(dst)); i++ {
			code := int8(codes[i/2]>>(i%2*4)<<4) >> 4
			dst[i] += T(T(code) * scale)
		}
	}
}

// scaleOf returns the scale of a block whose integers go up to top.
func scaleOf[T float32 | float64](block []T, top T) float32 {
	most := T(0)
	for _, v := range block {
		most = max(most, v, -v)
	}
	switch scale := float32(float64(most) / float64(top)); {
	case scale < 0x1p-126: // integers would not fit: such a scale has few bits
		return 0
	case scale > math.MaxFloat32:
		return float32(math.NaN())
	case math.IsInf(float64(top*T(scale)), 0): // it was rounded up
		return math.Nextafter32(scale, 0)
	default:
		return scale
	}
}

func decode8[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[T](a, 0), tensor.Operand[uint8](a, 1)
	scales, codes := src[:4*blocks(len(dst))], src[4*blocks(len(dst)):]
	for b := range blocks(len(dst)) {
		scale := T(math.Float32frombits(binary.LittleEndian.Uint32(scales[4*b:])))
		for i := b * blockLen; i < min((b+1)*blockLen, len(dst)); i++ {
			dst[i] = T(int8(codes[i])) * scale
		}
	}
}
