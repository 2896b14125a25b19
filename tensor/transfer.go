package tensor

import (
	"runtime"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// ToHost returns x if its memory is the host's, else a copy in host memory with the same layout. Use it to read a device's tensor with
// Data. It waits for the computation.
func ToHost(x Tensor) Tensor {
	h := x.hdr()
	if h.st.dev.Host() {
		return x
	}
	c := &header{dtype: h.dtype, n: h.n, ndim: h.ndim, dims: h.dims, ld: h.ld, rows: h.rows, part: h.part}
	newStorage(hostDevice, memory.Uncounted, c, "")
	transfer(c, h)
	return Tensor{c, 0}
}

// ToDevice returns x if dev can use its memory, else a contiguous copy on dev.
func ToDevice(dev Device, x Tensor) Tensor {
	if from := x.Device(); from == dev || from.Host() && dev.Host() {
		return x
	}
	y := New(dev, x.DType(), x.Shape().Dims...)
	Copy(y, x)
	return y
}

// Copy copies the elements of src to dst. Both have the same type and number of elements and are contiguous, on any devices. If one is in
// the memory of a device and the other in the host's, it waits for the computation and the copy.
func Copy(dst, src Tensor) {
	d, s := dst.hdr(), src.hdr()
	if d.dtype != s.dtype || d.n != s.n || d.ld != 0 || s.ld != 0 {
		fail("Copy", these(d, s), "the tensors must be contiguous, of one type and number of elements")
	}
	if d.part == ofNothing {
		s.mustNotBePart("Copy")
	}
	transfer(d, s)
}

func transfer(d, s *header) {
	to, from := d.st.dev, s.st.dev
	if s.n == 0 || to == from && d.ptr() == s.ptr() {
		return
	}
	switch {
	case to == from || to.Host() && from.Host():
		to.Copy(d.ptr(), s.ptr(), s.span()*s.dtype.Size(), to.Queue(0))
	case to.Host():
		move(from, d, s)
	case from.Host():
		move(to, d, s)
	default: // two devices with memory of their own
		transfer(d, ToHost(s.tensor()).h)
	}
}

// move copies between host memory and dev's, and waits.
func move(dev Device, d, s *header) {
	q := dev.Queue(0)
	dev.Copy(d.ptr(), s.ptr(), s.span()*s.dtype.Size(), q)
	if err := q.Sync(); err != nil {
		failWith("copy", these(s), err)
	}
}

// NewStaging returns a tensor that Go code can write and that dev can read, or copy fast: on dev itself if its memory is the host's, else
// in host memory, which is not counted (see Pinner).
func NewStaging(use memory.Use, dev Device, dtype DType, dims ...int) Tensor {
	if dev.Host() {
		return NewFor(use, dev, dtype, dims...)
	}
	p, ok := dev.(Pinner)
	if !ok {
		return NewFor(memory.Uncounted, hostDevice, dtype, dims...)
	}
	h := &header{dtype: dtype}
	h.setDims(dims)
	bytes := max(h.n*dtype.Size(), 1)
	m, err := p.AllocHost(bytes)
	if err != nil {
		fail("alloc", nil, "%d bytes of host memory for %v: %w", bytes, dev, err)
	}
	h.st = &storage{ptr: m, bytes: bytes, refs: 1, dev: hostDevice}
	runtime.AddCleanup(h.st, p.FreeHost, m)
	clear(unsafe.Slice((*byte)(m), bytes))
	return Tensor{h, 0}
}

// fillBytes sets n bytes of dev's memory to v.
func fillBytes(dev Device, p Ptr, n int, v byte) {
	if n == 0 {
		return
	}
	if dev.Host() {
		for i := range n {
			*(*byte)(unsafe.Add(p, i)) = v
		}
		return
	}
	e := NewExec(dev)
	a := e.Args(OpFill, Uint8)
	a.X[0], a.Len[0], a.DT[0], a.N, a.Outs, a.F[0] = p, n, Uint8, 1, 1, float64(v)
	e.Launch()
}

// spoil fills memory with NaN of every float type.
func spoil(dev Device, p Ptr, n int) { fillBytes(dev, p, n, 0xff) }
