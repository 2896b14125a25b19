package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// scratch is device memory that a kernel uses while it runs. Kernels of a queue run one after the other, so they share it. It grows to the
// largest need and is kept.
type scratch struct {
	x       tensor.Tensor
	refused int // the least number of bytes that the device did not have; 0: none
}

const muchScratch = 64 << 20 // so many bytes and more do not grow by half

// scratch returns n bytes. If it grows, that is another launch, which sets q.args: callers set them afterwards.
func (q *Queue) scratch(n int) cuda.Ptr {
	if q.work.x.IsZero() || q.work.x.Len() < n {
		op := q.op
		if n < muchScratch {
			n += n / 2
		}
		q.work.x = tensor.NewFor(memory.Other, q.dev, tensor.Uint8, n)
		q.op = op
	}
	return devPtr(q.work.x.Ptr())
}

// scratchOr is scratch, but with otherwise it returns false if the device does not have so much memory. It does not try again for as much
// or more, so that the kernels that run for a shape are the same from then on, in graphs too.
func (q *Queue) scratchOr(n int, otherwise bool) (p cuda.Ptr, ok bool) {
	if r := q.work.refused; otherwise && r > 0 && n >= r {
		return 0, false
	}
	err := tensor.Try(func() { p = q.scratch(n) })
	if otherwise && cuda.IsOutOfMemory(err) {
		q.work.refused = n
	} else if err != nil {
		panic(err)
	}
	return p, err == nil
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
