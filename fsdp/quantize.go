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
// its own. A block with an infinity or NaN becomes NaN as a whole. One of magnitudes below 2⁻¹²⁶ becomes zero.
const (
	unquantized Format = iota
	Int8               // −127 to 127
)

// String returns the name, such as "int8".
func (f Format) String() string {
	if names := [...]string{"unquantized", "int8"}; int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Format(%d)", f)
}

// check says whether values of ranks with such a device can travel in this form.
func (f Format) check(dev tensor.Device) error {
	switch {
	case f != unquantized && f != Int8:
		return fmt.Errorf("fsdp: Config.Weights is %v, not int8", f)
	case f != unquantized && dev.Kernels()[opQuantize][tensor.Float32] == nil:
		return fmt.Errorf("fsdp: Config.Weights is %v, and %v cannot quantize: leave it out", f, dev)
	}
	return nil
}

// bits returns what the integer of an element takes.
func (f Format) bits() int { return 8 }

// blockLen is the number of elements with a scale of their own.
const blockLen = 256

func blocks(n int) int { return (n + blockLen - 1) / blockLen }

// size returns the bytes of n elements: the scales of all blocks, then the integers.
func (f Format) size(n int) int { return 4*blocks(n) + (n*f.bits()+7)/8 }

// sizes returns the bytes of parts of so many elements.
func (f Format) sizes(counts []int) (sizes []int, all int) {
	for _, n := range counts {
		sizes = append(sizes, f.size(n))
		all += f.size(n)
	}
	return sizes, all
}

// opQuantize writes floats as scales and integers of I[0] bits.
var opQuantize = tensor.Register(tensor.OpSpec{Name: "fsdp_quantize", Const: true, CPU: [tensor.NumDTypes]tensor.Kernel{
	tensor.Float32: quantizeKernel[float32], tensor.Float64: quantizeKernel[float64]}})

// opDequantize is the reverse.
var opDequantize = tensor.Register(tensor.OpSpec{Name: "fsdp_dequantize", Const: true, CPU: [tensor.NumDTypes]tensor.Kernel{
	tensor.Float32: dequantizeKernel[float32], tensor.Float64: dequantizeKernel[float64]}})

// quantize writes the elements of src to dst, of f.size(src.Len()) bytes.
func (s *Sharding) quantize(f Format, dst, src tensor.Tensor) {
	if src.Len() > 0 {
		s.exec.Args(opQuantize, src.DType()).Out(dst).In(src).I[0] = f.bits()
		s.exec.Launch()
	}
}

// dequantize writes to dst what quantize wrote to src.
func (s *Sharding) dequantize(f Format, dst, src tensor.Tensor) {
	if dst.Len() > 0 {
		s.exec.Args(opDequantize, dst.DType()).Out(dst).In(src).I[0] = f.bits()
		s.exec.Launch()
	}
}

// layOutCodes makes room for a section's codes.
func (s *Sharding) layOutCodes(u *Unit, sec *section) {
	c, dev := &sec.codes, s.exec.Device()
	sizes, all := s.cfg.Weights.sizes(sec.counts)
	n := sizes[u.over.shard.Rank()]
	c.sizes, c.all = sizes, tensor.FromPtr(dev, nil, tensor.Uint8, all)
	c.mine = u.over.gathers.AllocFor(tensor.Parameters, tensor.Uint8, max(n, 1)).Range(0, n)
	s.codes.reserve(c.all)
	at, from := 0, 0
	for r, n := range sec.counts {
		c.of, c.to = append(c.of, c.all.Range(from, from+sizes[r])), append(c.to, sec.flat.Range(at, at+n))
		at, from = at+n, from+sizes[r]
	}
}

// gatherCodes starts the gather of a section's codes. A rank quantizes its part once after each change.
func (s *Sharding) gatherCodes(u *Unit, sec *section) dist.Work {
	c := &sec.codes
	if !c.made {
		s.quantize(s.cfg.Weights, c.mine, s.part(u, sec))
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
		s.dequantize(s.cfg.Weights, values, c.of[r])
	}
	s.codes.giveBack(c.buf, c.all)
	c.buf = tensor.Tensor{}
}

func quantizeKernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[uint8](a, 0), tensor.Operand[T](a, 1)
	scales, codes := dst[:4*blocks(len(src))], dst[4*blocks(len(src)):]
	for b := range blocks(len(src)) {
		block := src[b*blockLen : min((b+1)*blockLen, len(src))]
		scale := scaleOf(block, 127)
		binary.LittleEndian.PutUint32(scales[4*b:], math.Float32bits(scale))
		inverse := 0.0
		if scale > 0 {
			inverse = 1 / float64(scale)
		}
		for i, v := range block {
			codes[b*blockLen+i] = byte(int8(math.RoundToEven(float64(v) * inverse)))
		}
	}
}

// scaleOf returns the scale of a block whose integers end at top.
func scaleOf[T float32 | float64](block []T, top float64) float32 {
	most := T(0)
	for _, v := range block {
		most = max(most, v, -v)
	}
	switch scale := float32(float64(most) / top); {
	case scale < 0x1p-126: // integers would not fit: such a scale has few bits
		return 0
	case scale > math.MaxFloat32:
		return float32(math.NaN())
	default:
		return scale
	}
}

func dequantizeKernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, src := tensor.Operand[T](a, 0), tensor.Operand[uint8](a, 1)
	scales, codes := src[:4*blocks(len(dst))], src[4*blocks(len(dst)):]
	for b := range blocks(len(dst)) {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(scales[4*b:]))
		for i := b * blockLen; i < min((b+1)*blockLen, len(dst)); i++ {
			dst[i] = T(float32(int8(codes[i])) * scale)
		}
	}
}
