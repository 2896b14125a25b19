package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/quant"
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
	case f == Int8 && dev.Kernels()[quant.Encode8][tensor.Float32] == nil:
		return fmt.Errorf("fsdp: Config.Weights is %v, and %v cannot quantize: leave it out", f, dev)
	}
	return nil
}

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
		c.sizes = append(c.sizes, quant.Size8(n))
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
		s.launch(quant.Encode8, part.DType(), c.mine, part)
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
		s.launch(quant.Decode8, values.DType(), values, c.of[r])
	}
	s.codes.giveBack(&c.buf, c.all)
}
