package storage

import "github.com/ringo-ml/ringo/tensor"

// caster converts floating-point numbers as Tensor.Cast does, one chunk at a time.
type caster struct {
	dev      *tensor.CPU
	tape     *tensor.Tape
	from, to tensor.DType
}

// NewCaster returns a caster, which must be closed.
func NewCaster(from, to tensor.DType) *caster {
	dev := tensor.NewCPU(1)
	return &caster{dev, tensor.NewTape(dev, tensor.NoGrad()), from, to}
}

func (c *caster) Close() {
	c.tape.Close()
	c.dev.Close()
}

// Cast returns the numbers in b, converted. The result is valid until the next call.
func (c *caster) Cast(b []byte) []byte {
	c.tape.Reset()
	in := tensor.FromPtr(c.dev, tensor.FromSlice(b, len(b)).Ptr(), c.from, len(b)/c.from.Size())
	return c.tape.Input(in).Cast(c.to).Bytes()
}

// CastAll converts the numbers in src and writes them to dst.
func CastAll(dst []byte, to tensor.DType, src []byte, from tensor.DType) {
	c := NewCaster(from, to)
	defer c.Close()
	for len(src) > 0 {
		n := min(len(src), chunk)
		dst, src = dst[copy(dst, c.Cast(src[:n])):], src[n:]
	}
}
