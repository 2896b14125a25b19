package ckpt

import "github.com/ringo-ml/ringo/tensor"

// caster converts floating-point numbers as Tensor.Cast does, one chunk at a time.
type caster struct {
	dev      *tensor.CPU
	tape     *tensor.Tape
	from, to tensor.DType
}

func newCaster(from, to tensor.DType) *caster {
	dev := tensor.NewCPU(1)
	return &caster{dev, tensor.NewTape(dev, tensor.NoGrad()), from, to}
}

func (c *caster) close() {
	c.tape.Close()
	c.dev.Close()
}

// cast returns the numbers in b, converted. The result is valid until the next call.
func (c *caster) cast(b []byte) []byte {
	c.tape.Reset()
	in := tensor.FromPtr(c.dev, tensor.FromSlice(b, len(b)).Ptr(), c.from, len(b)/c.from.Size())
	return c.tape.Input(in).Cast(c.to).Bytes()
}

// castAll converts the numbers in src and writes them to dst.
func castAll(dst []byte, to tensor.DType, src []byte, from tensor.DType) {
	c := newCaster(from, to)
	defer c.close()
	for len(src) > 0 {
		n := min(len(src), chunk)
		dst, src = dst[copy(dst, c.cast(src[:n])):], src[n:]
	}
}
