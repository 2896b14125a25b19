package dist

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// If Go code cannot access a tensor's memory, and the engine cannot use it either (backend.DeviceUser), an operation is done in host
// memory. Its input is copied to the host before it is issued, and the host waits for this copy. When it is done, its output is copied
// back, in the order of the device's computing queue. So every engine works with every device; an engine that knows the device is faster.

// staged is the host memory of an operation. The zero value means that it uses its own memory.
type staged struct {
	src, dst tensor.Tensor // one buffer if the operation is in place
	back     backend.Mem   // where dst is copied to
}

// spare is a used buffer. It may be used again when its content has been copied.
type spare struct {
	x    tensor.Tensor
	free tensor.Pending
}

// maxSpares is how many buffers a rank keeps.
const maxSpares = 16

// takes reports whether the engine can do op on op's own memory.
func (l *lane) takes(op *backend.Op) bool {
	return !op.OnDevice() || l.device != nil && l.device.TakesDevice(op)
}

// stage replaces device memory by host memory. It needs c.mu.
func (l *lane) stage(s *slot) error {
	op := &s.op
	if l.takes(op) {
		return nil
	}
	c, inPlace := l.c, op.Src == op.Dst
	q := c.dev.Queue(0)
	s.staged = staged{}
	if op.Dst.Device {
		s.staged.dst, s.staged.back = c.buffer(op.Dst.Bytes), op.Dst
		op.Dst = backend.Mem{Ptr: s.staged.dst.Ptr(), Bytes: op.Dst.Bytes}
	}
	if !op.Src.Device {
		return nil
	}
	if from := op.Src; inPlace {
		op.Src = op.Dst
		c.copy(op.Src.Ptr, from, q)
	} else {
		s.staged.src = c.buffer(from.Bytes)
		op.Src = backend.Mem{Ptr: s.staged.src.Ptr(), Bytes: from.Bytes}
		c.copy(op.Src.Ptr, from, q)
	}
	return q.Mark().Wait()
}

func (c *comm) copy(dst tensor.Ptr, src backend.Mem, q tensor.Queue) {
	if src.Bytes > 0 {
		c.dev.Copy(dst, src.Ptr, src.Bytes, q)
	}
}

// unstage copies the result of an operation to the device. It needs c.mu.
func (l *lane) unstage(s *slot) {
	c, x := l.c, s.staged
	if x == (staged{}) {
		return
	}
	s.staged = staged{}
	c.keep(x.src, tensor.Pending{})
	if x.dst.IsZero() {
		return
	}
	q := c.dev.Queue(0)
	if x.back.Bytes > 0 {
		c.dev.Copy(x.back.Ptr, x.dst.Ptr(), x.back.Bytes, q)
	}
	c.keep(x.dst, q.Mark())
}

// buffer returns host memory of at least n bytes.
func (c *comm) buffer(n int) tensor.Tensor {
	for i, b := range c.spares {
		if b.x.Len() >= n && b.x.Len() <= 2*n+1024 && b.free.Done() {
			c.spares = slices.Delete(c.spares, i, i+1)
			return b.x
		}
	}
	return tensor.NewStaging(memory.Communication, c.dev, tensor.Uint8, max(n, 1))
}

// keep makes a buffer a spare one. If there are too many, it drops the oldest.
func (c *comm) keep(x tensor.Tensor, free tensor.Pending) {
	if x.IsZero() {
		return
	}
	if len(c.spares) == maxSpares {
		c.spares = slices.Delete(c.spares, 0, 1)
	}
	c.spares = append(c.spares, spare{x, free})
}
