package fsdp

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Format is the form of numbers on their way between ranks.
type Format uint8

// The forms. A quantized number is an integer times the scale of its block of 256: the largest magnitude of the block divided by the
// largest integer. Scales are float32, so an element takes 1/64 of a byte more than its integer. A rank's part begins with a block of
// its own. A block with an infinity or NaN becomes NaN as a whole. One of magnitudes below 127·2⁻¹²⁶ becomes zero.
const (
	unquantized Format = iota
	Int8               // −127 to 127
	Int4               // −7 to 7, two in a byte
)

// String returns the name, such as "int8".
func (f Format) String() string {
	if names := [...]string{"unquantized", "int8", "int4"}; int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Format(%d)", f)
}

// check says whether values of ranks with such a device can travel in this form.
func (f Format) check(dev tensor.Device) error {
	switch {
	case f != unquantized && f != Int8:
		return fmt.Errorf("fsdp: Config.Weights is %v, not int8", f)
	case f == Int8 && dev.Kernels()[opQuantize][tensor.Float32] == nil:
		return fmt.Errorf("fsdp: Config.Weights is %v, and %v cannot quantize: leave it out", f, dev)
	}
	return nil
}

// blockLen is the number of elements with a scale of their own.
const blockLen = 256

func blocks(n int) int { return (n + blockLen - 1) / blockLen }

// codeSize returns the bytes of n elements in Int8: the scales of all blocks, then the integers. code4Size is that in Int4.
func codeSize(n int) int { return 4*blocks(n) + n }

func code4Size(n int) int { return 4*blocks(n) + (n+1)/2 }

// opQuantize writes floats as scales and integers.
var opQuantize = tensor.Register(tensor.OpSpec{Name: "fsdp_quantize", Const: true, CPU: [tensor.NumDTypes]tensor.Kernel{
	tensor.Float32: quantizeKernel[float32], tensor.Float64: quantizeKernel[float64]}})

// opDequantize is the reverse.
var opDequantize = tensor.Register(tensor.OpSpec{Name: "fsdp_dequantize", Const: true, CPU: [tensor.NumDTypes]tensor.Kernel{
	tensor.Float32: dequantizeKernel[float32], tensor.Float64: dequantizeKernel[float64]}})

// opQuantize4 and opAdd4 are the same for Int4, but that opAdd4 adds to what is there.
var opQuantize4 = tensor.Register(tensor.OpSpec{Name: "fsdp_quantize4", Const: true, CPU: [tensor.NumDTypes]tensor.Kernel{
	tensor.Float32: quantize4Kernel[float32], tensor.Float64: quantize4Kernel[float64]}})

var opAdd4 = tensor.Register(tensor.OpSpec{Name: "fsdp_add4", Const: true, CPU: [tensor.NumDTypes]tensor.Kernel{
	tensor.Float32: add4Kernel[float32], tensor.Float64: add4Kernel[float64]}})

// launch runs one of the operations.
func (s *Sharding) launch(op tensor.Op, dtype tensor.DType, dst, src tensor.Tensor) {
	if src.Len() > 0 {
		s.exec.Args(op, dtype).Out(dst).In(src)
		s.exec.Launch()
	}
}

// layOutCodes makes room for a section's codes.
func (s *Sharding) layOutCodes(u *Unit, sec *section) {
	c := &sec.codes
	for _, n := range sec.counts {
		c.sizes = append(c.sizes, codeSize(n))
	}
	n := c.sizes[u.over.shard.Rank()]
	c.all = tensor.FromPtr(s.exec.Device(), nil, tensor.Uint8, total(c.sizes))
	c.mine = u.over.gathers.AllocFor(tensor.Parameters, tensor.Uint8, max(n, 1)).Range(0, n)
	c.of, c.to = runs(c.all, c.sizes), runs(sec.flat, sec.counts)
	s.codes.reserve(c.all)
}

// gatherCodes starts the gather of a section's codes. A rank quantizes its part once after each change.
func (s *Sharding) gatherCodes(u *Unit, sec *section) dist.Work {
	c := &sec.codes
	if !c.made {
		part := s.part(u, sec)
		s.launch(opQuantize, part.DType(), c.mine, part)
		c.made = true
	}
	c.buf = s.codes.lend(c.all)
	return u.over.gathers.AllGatherV(c.all, c.mine, c.sizes)
}

// expand makes values of codes that have arrived, this rank's own, too: all ranks have the same values.
func (s *Sharding) expand(sec *section) {
	c := &sec.codes
	if c.buf.IsZero() {
		return
	}
	for r, values := range c.to {
		s.launch(opDequantize, values.DType(), values, c.of[r])
	}
	s.codes.giveBack(c.buf, c.all)
	c.buf = tensor.Tensor{}
}

func quantizeKernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
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

func quantize4Kernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
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

func add4Kernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
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

func dequantizeKernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[T](a, 0), tensor.Operand[uint8](a, 1)
	scales, codes := src[:4*blocks(len(dst))], src[4*blocks(len(dst)):]
	for b := range blocks(len(dst)) {
		scale := T(math.Float32frombits(binary.LittleEndian.Uint32(scales[4*b:])))
		for i := b * blockLen; i < min((b+1)*blockLen, len(dst)); i++ {
			dst[i] = T(int8(codes[i])) * scale
		}
	}
}
