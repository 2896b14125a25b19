package mpi

import (
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/mpi"
)

// request is something that MPI does: a message on its way, or a collective. MPI uses its memory until it is over.
type request struct {
	handle uintptr
	over   bool
	asked  int // how often, see hurry
	err    error
	call   string           // for errors
	to     int              // of a message of the engine
	own    []byte           // memory that is not a user's
	copied bool             // all of it is in own, and nobody waits for it
	of     *endpoint        // whose operation it belongs to; nil: the engine's
	writes bool             // into a user's memory
	p2p    bool             // it can be canceled
	keep   []unsafe.Pointer // what it uses
	rest   func()           // begins the next piece of a message that is larger than a count; nil: there is none
}

// newRequest returns a request with memory for a message.
func (e *Engine) newRequest() *request {
	if n := len(e.spares); n > 0 {
		r := e.spares[n-1]
		e.spares = e.spares[:n-1]
		*r = request{own: r.own, copied: true}
		return r
	}
	return &request{own: make([]byte, 0, headBytes+inline), copied: true}
}

// start notes that MPI has begun r, or that it has failed already.
func (e *Engine) start(r *request) {
	if r.over = r.err != nil; !r.over && !e.test(r) {
		e.active = append(e.active, r)
	}
}

// test asks MPI whether r is over. This is also what makes MPI move data. e.mu is held.
func (e *Engine) test(r *request) bool {
	if r.over || !e.callable() {
		return r.over
	}
	e.flag = 0
	code := dl.Call4(e.lib.Test, uintptr(unsafe.Pointer(&r.handle)), uintptr(unsafe.Pointer(&e.flag)), e.lib.Ignore, 0)
	if int32(code) != 0 {
		r.err, r.over = e.lib.Err(r.call, code), true
	}
	r.over = r.over || e.flag != 0
	if rest := r.rest; r.over && r.err == nil && rest != nil {
		rest()
		r.over = r.err != nil
	}
	return r.over
}

// hurry asks for r alone: MPI moves the data of an operation only as fast as it is asked. Every fourth time it does nothing and returns
// false, and everything else has its turn.
func (r *request) hurry(e *Engine) bool {
	for i := 0; r.asked%4 < 3 && i < 8 && !e.test(r) && e.wanted.Load() == 0; i++ {
	}
	r.asked++
	return r.asked%4 != 0
}

// testAll asks for everything that is on its way.
func (e *Engine) testAll() {
	for i := 0; i < len(e.active); {
		r := e.active[i]
		if !e.test(r) {
			i++
			continue
		}
		e.active = slices.Delete(e.active, i, i+1)
		if r.copied {
			e.recycle(r)
			continue
		}
		r.of.wake()
		e.moves++
	}
}

// recycle ends a message that was copied. If MPI could not send one of the engine, it sends nothing any more; one of a group is the
// failure of that group.
func (e *Engine) recycle(r *request) {
	switch {
	case r.err != nil && r.of != nil:
		r.of.fail(r.err, true)
	case r.err != nil:
		e.failAll(r.err)
	case cap(r.own) <= maxMessage:
		e.spares = append(e.spares, r)
	}
}

// isend and irecv begin a message of n bytes at p.
func (e *Engine) isend(r *request, comm uintptr, to, tag int, p unsafe.Pointer, n int) {
	e.transfer(r, "MPI_Isend", e.lib.Isend, comm, to, tag, p, n)
}

func (e *Engine) irecv(r *request, comm uintptr, from, tag int, p unsafe.Pointer, n int) {
	e.transfer(r, "MPI_Irecv", e.lib.Irecv, comm, from, tag, p, n)
}

// transfer begins a message, or its first piece. Pieces come one after the other, and arrive in order.
func (e *Engine) transfer(r *request, call string, fn, comm uintptr, peer, tag int, p unsafe.Pointer, n int) {
	now := min(n, e.limit)
	if r.call, r.rest = call, nil; now < n {
		r.rest = func() { e.transfer(r, call, fn, comm, peer, tag, unsafe.Add(p, now), n-now) }
	}
	r.err = e.lib.Err(call, dl.Call12(fn, uintptr(p), uintptr(now), e.lib.Of[mpi.Byte], uintptr(peer), uintptr(tag), comm,
		uintptr(unsafe.Pointer(&r.handle)), 0, 0, 0, 0, 0))
}

// letGo ends what MPI still does for a failed end: after it, MPI writes into no memory of its user. It returns false if MPI cannot do
// that: for a collective there is no way.
func (e *Engine) letGo(b *endpoint) bool {
	for _, r := range slices.Clone(e.active) {
		if r.of != b || !r.writes || r.over {
			continue
		}
		if !r.p2p || e.away != "" {
			return false
		}
		if e.lib.Do("MPI_Cancel", uintptr(unsafe.Pointer(&r.handle))) != nil {
			return false
		}
		r.rest = nil
		for tries := 0; !e.test(r); tries++ {
			if tries == 1000 {
				return false
			}
		}
	}
	return true
}
