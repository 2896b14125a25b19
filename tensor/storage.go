package tensor

import (
	"runtime"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/internal/arena"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Fence says when an asynchronous operation, with number seq, no longer uses the memory that it was given. A lane of package dist is one,
// and so is a queue of a device (Queue.Mark). If the memory is a device's, an operation is over when all later launches on the device's
// queue 0 run after it.
type Fence interface {
	// FenceDone reports whether operation seq is over. It does not block.
	FenceDone(seq uint64) bool
	// FenceWait blocks until operation seq is over and returns its error.
	FenceWait(seq uint64) error
}

// User is a Fence that knows which memory an operation uses. If the operation is not over, and writes memory from lo up to hi, or reads it
// and write is set, FenceUses says what it is; otherwise "".
type User interface {
	FenceUses(seq uint64, lo, hi uintptr, write bool) string
}

// Pending is an operation that may still run: a fence and the operation's number. The zero Pending is over.
type Pending struct {
	F   Fence
	Seq uint64
}

// Done reports whether the operation is over.
func (p Pending) Done() bool { return p.F == nil || p.F.FenceDone(p.Seq) }

// Wait blocks until the operation is over and returns its error.
func (p Pending) Wait() error {
	if p.F == nil {
		return nil
	}
	return p.F.FenceWait(p.Seq)
}

// storage is a piece of memory. Several headers (views, shared gradients) may refer to it.
type storage struct {
	ptr        Ptr       // nil: not resident
	coming     *arriving // if a collective still fills it (see Ctx.Arrives)
	bytes      int
	arena      *arena.Arena // owner of step memory; nil for other memory
	refs       int32
	numPending int32 // len(pending)
	dev        Device
	pending    []Pending       // collectives that still read or write it
	heap       Ptr             // kept reachable: Go memory, or an object that frees the memory
	names      *names          // of parameters, for errors; nil: none
	acct       *memory.Account // nil: not counted, or step memory, which its arena counts
}

// names says whose memory it is: a parameter's, or that of an owner of several ones, which has it for their values.
type names struct {
	whole string
	parts []*Param
}

// valueOf returns the parameter whose value h is or views, in the memory of an owner of several, or nil.
func (h *header) valueOf() *Param {
	if h.st == nil || h.st.names == nil {
		return nil
	}
	for _, p := range h.st.names.parts {
		if v := p.Value.h; v != nil && v.st == h.st && v.off <= h.off && h.off < v.off+v.n*v.dtype.Size() {
			return p
		}
	}
	return nil
}

// wholeName is the name of the parameter whose memory it is, or "".
func (s *storage) wholeName() string {
	if s == nil || s.names == nil {
		return ""
	}
	return s.names.whole
}

// busy reports whether a collective still uses the memory. It forgets collectives that are over.
func (s *storage) busy() bool { return s.numPending > 0 && s.stillBusy() }

func (s *storage) stillBusy() bool {
	k := 0
	for _, p := range s.pending {
		if !p.Done() {
			s.pending[k] = p
			k++
		}
	}
	s.pending, s.numPending = s.pending[:k], int32(k)
	return k > 0
}

// mustBeFree fails what if a collective still writes h's memory, which begins at p, or with write, reads it.
func (h *header) mustBeFree(what string, p Ptr, write bool) {
	for _, x := range h.st.pending {
		u, ok := x.F.(User)
		if !ok || p == nil {
			continue
		}
		if by := u.FenceUses(x.Seq, uintptr(p), uintptr(p)+uintptr(h.span()*h.dtype.Size()), write); by != "" {
			fail(what, these(h), "%s still uses this memory: wait for it before, with .Wait() behind its call", by)
		}
	}
}

// waitUsers waits until no collective uses the memory. It drops errors of the collectives: their own Wait returns them.
func (s *storage) waitUsers() {
	for _, p := range s.pending {
		_ = p.Wait()
	}
	s.pending, s.numPending = s.pending[:0], 0
}

// free gives step memory back to its arena.
func (s *storage) free() {
	if s.ptr == nil && !s.markArrived() {
		return
	}
	s.arena.Free(arena.Block{P: s.ptr, Bytes: s.bytes})
	s.ptr = nil
}

// count counts bytes of the memory for a use, until it is not reachable any more.
func (s *storage) count(u memory.Use, bytes int) {
	if u == memory.Uncounted {
		return
	}
	if s.acct == nil {
		s.acct = memory.NewAccount(s.dev.Memory())
		runtime.AddCleanup(s, (*memory.Account).Close, s.acct)
	}
	s.acct.Add(u, bytes)
}

// alignedBytes returns n bytes of Go memory, and the pointer that keeps them reachable.
func alignedBytes(n int) (p, heap Ptr) {
	heap = unsafe.Pointer(unsafe.SliceData(make([]byte, n+63)))
	return unsafe.Add(heap, int(-uintptr(heap)&63)), heap
}

// newStorage gives h zeroed memory that lives as long as something refers to it. name is the parameter's, or "".
func newStorage(dev Device, use memory.Use, h *header, name string) {
	if dev == nil {
		fail("alloc", these(h), "the device is nil")
	}
	s := allocate(dev, use, h, h.span()*h.dtype.Size(), name)
	s.count(use, s.bytes)
}

// allocate gives h zeros that are not counted. use is for errors.
func allocate(dev Device, use memory.Use, h *header, bytes int, name string) *storage {
	s := &storage{bytes: bytes, refs: 1, dev: dev}
	if name != "" {
		s.names = &names{whole: name}
	}
	h.st = s
	if dev.Host() {
		if m, ok := dev.(mapper); ok && bytes > muchMemory {
			if err := m.Mappable(bytes); err != nil {
				noMemory(dev, use, h, bytes, err)
			}
		}
		s.ptr, s.heap = alignedBytes(max(bytes, 1))
		return s
	}
	p, err := dev.Alloc(bytes)
	if err != nil {
		noMemory(dev, use, h, bytes, err)
	}
	s.ptr = p
	runtime.AddCleanup(s, dev.Free, p)
	fillBytes(dev, p, bytes, 0)
	return s
}

// mapper is a device that says whether the system would give n bytes of host memory.
type mapper interface{ Mappable(n int) error }

const muchMemory = 64 << 20 // from here on the system is asked first: Go ends the process if it cannot get memory

// noMemory fails because a device did not give n bytes for h. The error lists what the device's memory is used for.
func noMemory(dev Device, use memory.Use, h *header, n int, err error) {
	fail("alloc", these(h), "%s (%v) on %v: %w; in use: %s; `ringo plan` says how much a training needs",
		memory.Format(n), use, dev, err, dev.Memory().List())
}
