package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// scratch is device memory that a kernel uses while it runs. Kernels of a queue run one after the other, so they share it. It grows to the
// largest need and is kept.
type scratch struct{ x tensor.Tensor }

// scratch returns n bytes. If it grows, that is another launch, which sets q.args: callers set them afterwards.
func (q *Queue) scratch(n int) cuda.Ptr {
	if q.work.x.IsZero() || q.work.x.Len() < n {
		op := q.op
		q.work.x = tensor.NewFor(memory.Other, q.dev, tensor.Uint8, n+n/2)
		q.op = op
	}
	return devPtr(q.work.x.Ptr())
}

// counters returns two words that are 0 before and after each kernel that uses them. Callers set q.args afterwards.
func (q *Queue) counters() cuda.Ptr {
	if q.count.IsZero() {
		op := q.op
		words := tensor.NewFor(memory.Other, q.dev, tensor.Int32, 2)
		q.op = op
		q.fixed("a fill")
		fill := func() error { return q.stream.Fill(devPtr(words.Ptr()), 0, 8) }
		if err := fill(); err != nil {
			q.retry(err, fill)
		}
		q.count = words
	}
	return devPtr(q.count.Ptr())
}

// badAddress is the address of the word in which kernels report an index out of range: page-locked memory has the same address on host and
// device.
func badAddress(d *Device) cuda.Ptr {
	return devPtr(unsafe.Pointer(unsafe.SliceData(d.bad.Bytes())))
}
