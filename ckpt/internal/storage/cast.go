package storage

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// caster converts floating-point numbers as Tensor.Cast does, one chunk at a time.
type caster struct {
	dev      *cpu.Device
	tape     *tensor.Tape
	from, to tensor.DType
}

// NewCaster returns a caster, which must be closed.
func NewCaster(from, to tensor.DType) *caster {
	dev := cpu.New(1)
	return &caster{dev, tensor.NewTape(dev, tensor.NoGrad()), from, to}
}

func (c *caster) Close() {
	c.tape.Close()
	c.dev.Close()
}

// Cast returns the numbers in b, converted. The result is valid until the next call. A number that would become infinite is an error.
func (c *caster) Cast(b []byte) ([]byte, error) {
	c.tape.Reset()
	in := tensor.FromPtr(c.dev, tensor.FromSlice(b, len(b)).Ptr(), c.from, len(b)/c.from.Size())
	out := c.tape.Input(in).Cast(c.to).Bytes()
	if c.from.Size() >= c.to.Size() && c.from != tensor.Float16 { // else all numbers fit
		if _, after := Nonfinite(c.to, out); after > 0 {
			if _, before := Nonfinite(c.from, b); after > before {
				return nil, fmt.Errorf("%d values of %s are too large for %s: take a wider type", after-before, c.from, c.to)
			}
		}
	}
	return out, nil
}

// CastAll converts the numbers in src and writes them to dst.
func CastAll(dst []byte, to tensor.DType, src []byte, from tensor.DType) error {
	c := NewCaster(from, to)
	defer c.Close()
	for len(src) > 0 {
		n := min(len(src), chunk)
		out, err := c.Cast(src[:n])
		if err != nil {
			return err
		}
		dst, src = dst[copy(dst, out):], src[n:]
	}
	return nil
}
