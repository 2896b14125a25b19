package cuda

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// hostPtr returns a device address in the type that tensors use; Go code never dereferences it.
func hostPtr(p cuda.Ptr) tensor.Ptr { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// devPtr is the inverse of hostPtr.
func devPtr(p tensor.Ptr) cuda.Ptr { return cuda.Ptr(uintptr(p)) }

// span is a piece of device memory.
type span struct {
	lo, hi uintptr
	dev    *Device
	owned  bool // from Alloc
}

// spans knows the memory of all devices of the process. All other addresses are host memory.
type spans struct {
	mu   sync.RWMutex
	list []span // sorted, without overlaps
}

var known spans

// find returns the index of the span that contains p, or where such a span would be inserted.
func (m *spans) find(p uintptr) (int, bool) {
	return slices.BinarySearchFunc(m.list, p, func(s span, p uintptr) int {
		switch {
		case p < s.lo:
			return 1
		case p >= s.hi:
			return -1
		}
		return 0
	})
}

func (m *spans) add(s span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, _ := m.find(s.lo)
	m.list = slices.Insert(m.list, at, s)
}

// remove removes the span that d allocated at p, and reports whether there was one.
func (m *spans) remove(p tensor.Ptr, d *Device) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.find(uintptr(p))
	if ok = ok && m.list[at].dev == d; ok {
		m.list = slices.Delete(m.list, at, at+1)
	}
	return ok
}

// removeAll removes all spans of d, and returns the addresses that d allocated itself.
func (m *spans) removeAll(d *Device) (owned []tensor.Ptr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = slices.DeleteFunc(m.list, func(s span) bool {
		if s.dev == d && s.owned {
			owned = append(owned, hostPtr(cuda.Ptr(s.lo)))
		}
		return s.dev == d
	})
	return owned
}

// owner returns the device whose memory p is in, or nil for host memory.
func (m *spans) owner(p tensor.Ptr) *Device {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if at, ok := m.find(uintptr(p)); ok {
		return m.list[at].dev
	}
	return nil
}

// FromPointer returns a tensor on memory of this GPU that another library allocated, such as gorgonia.org/cu or NCCL. The memory must live
// as long as the tensor is used; release makes the device forget it. It is an error if the address is not memory of this GPU.
func (d *Device) FromPointer(p uintptr, dtype tensor.DType, dims ...int) (x tensor.Tensor, release func(), err error) {
	var at int
	err = d.locked(func() (err error) {
		at, err = d.gpu.Owner(cuda.Ptr(p))
		return err
	})
	if err == nil && at != d.gpu.Index {
		err = fmt.Errorf("it belongs to device %d", at)
	}
	if err != nil {
		return tensor.Tensor{}, nil, fmt.Errorf("%v: %#x is not its memory: %w", d, p, err)
	}
	ptr := hostPtr(cuda.Ptr(p))
	x = tensor.FromPtr(d, ptr, dtype, dims...)
	if known.owner(ptr) != nil {
		return x, func() {}, nil
	}
	known.add(span{lo: p, hi: p + uintptr(max(x.Len()*dtype.Size(), 1)), dev: d})
	return x, func() { known.remove(ptr, d) }, nil
}

// Copy copies n bytes, in the order of q. Each address may be host memory or memory of any GPU. Copies from and to memory of AllocHost do
// not block the host; that memory must not change until the queue has done the copy.
func (d *Device) Copy(dst, src tensor.Ptr, n int, q tensor.Queue) {
	if n == 0 {
		return
	}
	if known.owner(dst) == nil || known.owner(src) == nil {
		if err := q.(*Queue).refuse("copy", "copies from or to host memory"); err != nil {
			panic(err)
		}
	}
	err := d.locked(func() error { return d.copy(dst, src, n, q.(*Queue).stream) })
	if err != nil {
		panic(d.fail("copy", err))
	}
}

func (d *Device) copy(dst, src tensor.Ptr, n int, s *cuda.Stream) error {
	to, from := known.owner(dst), known.owner(src)
	switch {
	case to == nil && from == nil:
		if err := s.Sync(); err != nil {
			return err
		}
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
		return nil
	case from == nil:
		return s.Upload(devPtr(dst), unsafe.Slice((*byte)(src), n))
	case to == nil:
		return s.Download(unsafe.Slice((*byte)(dst), n), devPtr(src))
	case to.gpu == from.gpu:
		return s.Copy(devPtr(dst), devPtr(src), n)
	}
	return s.CopyPeer(devPtr(dst), to.gpu, devPtr(src), from.gpu, n)
}
