package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Ptr is an address in device memory; 0 is none. Go code cannot read or write
// through it.
type Ptr uint64

// MemInfo returns the device's free and total memory in bytes. Free memory is what
// no process uses.
func (dev *Device) MemInfo() (free, total int64, err error) {
	var f, t uintptr
	r := dl.Call(dev.drv.fn.MemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), dev.check("cuMemGetInfo", r)
}

// Owner returns the index of the device that an address belongs to, also if another
// library allocated it. It is an error if the address is not device memory.
func (dev *Device) Owner(p Ptr) (int, error) {
	const memoryType, deviceOrdinal, inDevice = 2, 9, 2
	kind, err := dev.pointerAttribute(memoryType, p)
	if err != nil {
		return 0, err
	}
	if kind != inDevice {
		return 0, fmt.Errorf("cuda: address %#x is not device memory", uint64(p))
	}
	return dev.pointerAttribute(deviceOrdinal, p)
}

func (dev *Device) pointerAttribute(attribute uintptr, p Ptr) (int, error) {
	var v int32
	r := dl.Call(dev.drv.fn.PointerGetAttribute, uintptr(unsafe.Pointer(&v)), attribute, uintptr(p))
	return int(v), dev.check("cuPointerGetAttribute", r)
}

// malloc and free call the driver. They are slow, and may wait for the device. All
// other code uses a Pool.
func (dev *Device) malloc(n int) (Ptr, error) {
	dev.stats.mallocs.Add(1)
	var p Ptr
	r := dl.Call(dev.drv.fn.MemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
	return p, dev.check("cuMemAlloc", r)
}

func (dev *Device) free(p Ptr) error {
	return dev.check("cuMemFree", dl.Call(dev.drv.fn.MemFree, uintptr(p)))
}

// Host is pinned host memory: copies from and to it do not block the host.
type Host struct {
	dev   *Device
	bytes []byte
}

// NewHost allocates n bytes of pinned host memory, which every device can use.
func (dev *Device) NewHost(n int) (*Host, error) {
	const portable = 1
	dev.stats.mallocs.Add(1)
	var p unsafe.Pointer
	r := dl.Call(dev.drv.fn.MemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n), portable)
	if err := dev.check("cuMemHostAlloc", r); err != nil {
		return nil, err
	}
	return &Host{dev: dev, bytes: unsafe.Slice((*byte)(p), n)}, nil
}

// Bytes is the memory. Do not use it while a copy is queued or runs: record an
// event after the copy.
func (h *Host) Bytes() []byte { return h.bytes }

// Close frees the memory. No copy may be queued or running.
func (h *Host) Close() error {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(h.bytes)))
	h.bytes = nil
	return h.dev.check("cuMemFreeHost", dl.Call(h.dev.drv.fn.MemFreeHost, p))
}

// Upload queues a copy of src to device memory. If src is pinned, the host does not
// wait. Otherwise src has been read when Upload returns. Stats counts it.
func (s *Stream) Upload(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if err := s.refuseUnpinned(src); err != nil {
		return err
	}
	s.dev.stats.toDevice.Add(1)
	r := dl.Call4(s.dev.drv.fn.MemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)), s.handle)
	return s.waitUnpinned(src, s.dev.check("cuMemcpyHtoDAsync", r))
}

// Download queues a copy of device memory to dst. If dst is pinned, the host does
// not wait. Otherwise dst has been written when Download returns. Stats counts it.
func (s *Stream) Download(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	if err := s.refuseUnpinned(dst); err != nil {
		return err
	}
	s.dev.stats.toHost.Add(1)
	r := dl.Call4(s.dev.drv.fn.MemcpyDtoHAsync, uintptr(unsafe.Pointer(&dst[0])), uintptr(src), uintptr(len(dst)), s.handle)
	return s.waitUnpinned(dst, s.dev.check("cuMemcpyDtoHAsync", r))
}

// waitUnpinned waits for a copy from or to ordinary host memory, if the driver may
// read or write it later. CUDA says only that such copies "might be synchronous"
// (Driver API, "API synchronization behavior").
func (s *Stream) waitUnpinned(b []byte, err error) error {
	if err == nil && s.reaches && !s.pinned(b) {
		err = s.Sync()
		runtime.KeepAlive(b)
	}
	return err
}

// pinned reports whether host memory is page-locked.
func (s *Stream) pinned(b []byte) bool {
	const memoryType = 2
	r := dl.Call4(s.dev.drv.fn.PointerGetAttribute, uintptr(unsafe.Pointer(&s.kind)), memoryType, uintptr(unsafe.Pointer(&b[0])), 0)
	return int32(r) == 0
}

// refuseUnpinned returns an error for ordinary memory while a graph is recorded: a
// driver may record its address, and a launch would then use memory that Go has
// reused.
func (s *Stream) refuseUnpinned(b []byte) error {
	if s.dev.captures.Load() == 0 {
		return nil
	}
	var recording int32
	r := dl.Call(s.dev.drv.fn.StreamIsCapturing, s.handle, uintptr(unsafe.Pointer(&recording)))
	if err := s.dev.check("cuStreamIsCapturing", r); err != nil || recording == 0 {
		return err
	}
	if !s.pinned(b) {
		return errors.New("cuda: a copy between the device and ordinary host memory is recorded in a graph: only pinned memory stays")
	}
	return nil
}

// Copy queues a copy of n bytes inside the device. The ranges must not overlap.
func (s *Stream) Copy(dst, src Ptr, n int) error {
	if n == 0 {
		return nil
	}
	r := dl.Call4(s.dev.drv.fn.MemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), s.handle)
	return s.dev.check("cuMemcpyDtoDAsync", r)
}

// CopyPeer queues a copy of n bytes from one device to another, with or without
// a direct path between them.
func (s *Stream) CopyPeer(dst Ptr, to *Device, src Ptr, from *Device, n int) error {
	if n == 0 {
		return nil
	}
	r := dl.Call12(s.dev.drv.fn.MemcpyPeerAsync, uintptr(dst), to.ctx, uintptr(src), from.ctx, uintptr(n), s.handle, 0, 0, 0, 0, 0, 0)
	return s.dev.check("cuMemcpyPeerAsync", r)
}

// Fill sets n bytes to v.
func (s *Stream) Fill(p Ptr, v byte, n int) error {
	if n == 0 {
		return nil
	}
	r := dl.Call4(s.dev.drv.fn.MemsetD8Async, uintptr(p), uintptr(v), uintptr(n), s.handle)
	return s.dev.check("cuMemsetD8Async", r)
}

// Fill32 sets n 32-bit words to v; p is a multiple of 4.
func (s *Stream) Fill32(p Ptr, v uint32, n int) error {
	if n == 0 {
		return nil
	}
	r := dl.Call4(s.dev.drv.fn.MemsetD32Async, uintptr(p), uintptr(v), uintptr(n), s.handle)
	return s.dev.check("cuMemsetD32Async", r)
}
