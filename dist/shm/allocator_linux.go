package shm

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// span is a range of a segment.
type span struct{ off, n int }

// allocator hands out page-aligned spans of a segment: the first that fits. Spans given back are zeroed, and cost nothing
// until they are used again.
type allocator struct {
	seg *segment

	mu       sync.Mutex
	free     []span // in order, never adjacent
	used     map[int]int
	isolated []span
	closed   bool
}

// keptMappings counts the mappings that outlive their Host, for whoever still holds memory of Alloc.
var keptMappings atomic.Int32

func newAllocator(seg *segment) *allocator {
	return &allocator{seg: seg, free: []span{{0, len(seg.b)}}, used: map[int]int{}}
}

// alloc returns the offset of n zero bytes.
func (a *allocator) alloc(n int) (int, error) {
	if n < 0 || n > len(a.seg.b) {
		return 0, a.seg.errorf("cannot hold %d bytes", n)
	}
	n = (max(n, 1) + pageBytes - 1) &^ (pageBytes - 1) // no two have one offset
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, a.seg.errorf("closed")
	}
	for i := range a.free {
		s := &a.free[i]
		if s.n < n {
			continue
		}
		off := s.off
		s.off, s.n = s.off+n, s.n-n
		if s.n == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		a.used[off] = n
		return off, nil
	}
	return 0, a.seg.errorf("no room for %d bytes", n)
}

// release gives a span back. An offset that alloc did not give is a mistake of this package's user.
func (a *allocator) release(off int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.used[off]
	if !ok {
		return fmt.Errorf("shm: %#x was not allocated here", off)
	}
	delete(a.used, off)
	if slices.ContainsFunc(a.isolated, func(s span) bool { return off <= s.off && s.off < off+n }) {
		return nil
	}
	if err := unix.Madvise(a.seg.b[off:off+n], unix.MADV_REMOVE); err != nil {
		clear(a.seg.b[off : off+n])
	}
	i, _ := slices.BinarySearchFunc(a.free, off, func(s span, off int) int { return s.off - off })
	a.free = slices.Insert(a.free, i, span{off, n})
	if i+1 < len(a.free) && off+n == a.free[i+1].off {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].off+a.free[i-1].n == off {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
	return nil
}

// close unmaps the segment: at once, or, if some spans were not given back, when none of it is reachable.
func (a *allocator) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if len(a.used) == 0 {
		a.seg.unmap()
		return
	}
	keptMappings.Add(1)
	runtime.AddCleanup(a.seg, func(b []byte) {
		_ = unix.Munmap(b) // as in unmap
		keptMappings.Add(-1)
	}, a.seg.b)
}

// shared reports whether peers see bytes off to off+n as this rank does.
func (a *allocator) shared(off, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(a.isolated, func(s span) bool { return off < s.off+s.n && s.off < off+n })
}

// isolate takes the pages of a range away from the peers: this rank keeps its data at the same addresses, in memory of its
// own. If a peer was stopped in the middle of a write, it writes later to pages that nobody reads. The span
// around it is never handed out again.
func (a *allocator) isolate(off, n int) error {
	lo, hi := off&^(pageBytes-1), (off+n+pageBytes-1)&^(pageBytes-1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isolated = append(a.isolated, span{lo, hi - lo})
	keep := slices.Clone(a.seg.b[lo:hi])
	p := unsafe.Pointer(&a.seg.b[lo])
	_, err := unix.MmapPtr(-1, 0, p, uintptr(hi-lo), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	if err != nil {
		return a.seg.errorf("cannot take bytes %d to %d back: %w", lo, hi, err)
	}
	copy(a.seg.b[lo:hi], keep)
	return nil
}
