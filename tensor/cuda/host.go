package cuda

import (
	"errors"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// hosts is the page-locked memory of a device. Freed memory is given out again when the work launched before its Free is done. The driver
// gets it back only when the device is closed: freeing in the driver waits for all devices of the process. Among that work may be a
// collective that waits for a launch which the caller of Free has not made yet: a deadlock.
type hosts struct {
	mu    sync.Mutex
	inUse map[tensor.Ptr]*cuda.Host // in use
	freed []*cuda.Host              // not used any more after the next mark
	idle  []idleHost                // not used any more after the marks of each
}

type idleHost struct {
	mem  *cuda.Host
	past [numQueues]tensor.Pending
}

// hostSize rounds up to a power of two, so that freed memory can be reused more often.
func hostSize(n int) int { return 1 << bits.Len(uint(max(n, 4096)-1)) }

func hostAddress(h *cuda.Host) tensor.Ptr { return unsafe.Pointer(unsafe.SliceData(h.Bytes())) }

// AllocHost returns n bytes of page-locked host memory with undefined content. Copies from and to it do not block the host.
func (d *Device) AllocHost(n int) (tensor.Ptr, error) {
	d.hosts.mu.Lock()
	defer d.hosts.mu.Unlock()
	size := hostSize(n)
	h := d.hosts.take(d, size)
	if h == nil {
		err := d.locked(func() (err error) {
			h, err = d.gpu.NewHost(size)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	d.hosts.inUse[hostAddress(h)] = h
	return hostAddress(h), nil
}

// take returns freed memory that is no longer used, or nil.
func (m *hosts) take(d *Device, size int) *cuda.Host {
	if len(m.freed) > 0 && d.recorded.Load() == nil { // a recording allows no marks
		var past [numQueues]tensor.Pending
		for k, q := range d.queues {
			past[k] = q.Mark()
		}
		for _, h := range m.freed {
			m.idle = append(m.idle, idleHost{h, past})
		}
		m.freed = m.freed[:0]
	}
	i := slices.IndexFunc(m.idle, func(x idleHost) bool {
		return len(x.mem.Bytes()) == size && !slices.ContainsFunc(x.past[:], func(p tensor.Pending) bool { return !p.Done() })
	})
	if i < 0 {
		return nil
	}
	h := m.idle[i].mem
	m.idle = slices.Delete(m.idle, i, i+1)
	return h
}

// FreeHost returns memory that AllocHost gave. What was launched before may still use it.
func (d *Device) FreeHost(p tensor.Ptr) {
	d.hosts.mu.Lock()
	defer d.hosts.mu.Unlock()
	if h := d.hosts.inUse[p]; h != nil {
		delete(d.hosts.inUse, p)
		d.hosts.freed = append(d.hosts.freed, h)
	}
}

// close frees all of it in the driver. The queues must be done.
func (m *hosts) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.AppendSeq(m.freed, maps.Values(m.inUse))
	for _, x := range m.idle {
		all = append(all, x.mem)
	}
	clear(m.inUse)
	m.freed, m.idle = nil, nil
	var errs []error
	for _, h := range all {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}
