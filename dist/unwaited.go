package dist

import (
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/ringo-ml/ringo/dist/backend"
)

// A program that does not wait for a Work may read a result before it is there, or change an input too early. So each lane knows the
// operations that nobody has waited for, and Close or Run reports them at the end. Not reported are
//
//   - operations whose Work was waited for (Wait, WaitHost, or Done that returned true), was put in a Batch, or was given to package tensor
//     (Pending);
//   - links of a chain: a later operation uses what the operation writes, or what it only reads (if both only read, on one lane). Then that
//     one must be waited for;
//   - those of a captured step, which waits for all at its end, and those of groups that have failed.
type unwaited struct {
	ring [backend.Depth]atomic.Uint64 // by number modulo Depth; 0: none. Atomic, so that a Wait for what is over needs no lock
	low  uint64                       // those before it are not in the ring
	old  map[uint64]oldWork           // whose place in the ring is used again
	olds atomic.Int32                 // len(old)
}

// oldWork is what is kept of an operation that nobody has waited for while Depth others came.
type oldWork struct {
	kind backend.Kind
	use  use
}

// maxOld limits the memory of programs that never wait.
const maxOld = 1 << 16

// issuedWork notes that operation seq begins, before it gets its place in the lane's rings. Without a result, nobody has to wait for it. It
// needs c.mu.
func (l *lane) issuedWork(seq uint64, result bool) {
	u := &l.unwaited
	at := &u.ring[seq%backend.Depth]
	if before := at.Load(); before > 0 && len(u.old) < maxOld {
		if u.old == nil {
			u.old = map[uint64]oldWork{}
		}
		u.old[before] = oldWork{l.slot(before).op.Kind, l.uses[before%backend.Depth]}
		u.olds.Store(int32(len(u.old)))
	}
	if !result {
		seq = 0
	}
	at.Store(seq)
}

// settle notes that somebody waits for operation seq.
func (l *lane) settle(seq uint64) {
	if !l.unwaited.take(seq) && l.unwaited.olds.Load() > 0 {
		l.c.mu.Lock()
		defer l.c.mu.Unlock()
		l.unwaited.forget(seq)
	}
}

// take removes an operation from the ring. It reports whether it was there.
func (u *unwaited) take(seq uint64) bool {
	at := &u.ring[seq%backend.Depth]
	return at.Load() == seq && at.CompareAndSwap(seq, 0)
}

// forget removes an operation from old. It needs c.mu.
func (u *unwaited) forget(seq uint64) {
	delete(u.old, seq)
	u.olds.Store(int32(len(u.old)))
}

// link settles the operations to which one on this lane, with use by, is the next link of a chain. It needs c.mu.
func (l *lane) link(by *use) {
	for _, x := range l.c.lanes {
		u := &x.unwaited
		if u.low = max(u.low, 1, x.issued-min(x.issued, backend.Depth-1)); u.low <= x.issued {
			x.linkRing(by, x == l)
		}
		if len(u.old) > 0 {
			maps.DeleteFunc(u.old, func(_ uint64, o oldWork) bool { return o.use.leads(by, x == l) })
			u.olds.Store(int32(len(u.old)))
		}
	}
}

// linkRing is link for the ring, with use by.
func (l *lane) linkRing(by *use, sameLane bool) {
	u := &l.unwaited
	first := l.issued + 1
	for seq := u.low; seq <= l.issued; seq++ {
		switch {
		case u.ring[seq%backend.Depth].Load() != seq:
		case l.leads(seq, by, sameLane):
			u.take(seq)
		default:
			first = min(first, seq)
		}
	}
	u.low = first
}

// leads reports whether an operation of the ring, or a part of it if it is a batch, leads to one with use by.
func (l *lane) leads(seq uint64, by *use, sameLane bool) bool {
	if l.be != nil {
		return l.uses[seq%backend.Depth].leads(by, sameLane)
	}
	for _, p := range l.slot(seq).parts {
		if p.l.issued-p.seq < backend.Depth && p.l.leads(p.seq, by, sameLane) {
			return true
		}
	}
	return false
}

// leads: on one lane, an operation is over before the next, so two may read the same memory.
func (a *use) leads(b *use, sameLane bool) bool {
	mine := a.written
	if mine == (span{}) {
		mine = a.read
		if !sameLane {
			return mine.overlaps(b.written)
		}
	}
	return mine.overlaps(b.read) || mine.overlaps(b.written)
}

// neverWaited returns an error if the program has not waited for an operation of the group. It needs c.mu.
func (g *Group) neverWaited() error {
	var first *Error
	n := 0
	note := func(seq uint64, kind backend.Kind) {
		if n++; first == nil || seq < first.Seq {
			first = &Error{Rank: g.c.rank, Group: g.name, Op: kind.String(), Seq: seq}
		}
	}
	g.eachLane(func(l *lane) {
		for i := range l.unwaited.ring {
			if seq := l.unwaited.ring[i].Load(); seq > 0 {
				note(seq, l.slot(seq).op.Kind)
			}
		}
		for seq, o := range l.unwaited.old {
			note(seq, o.kind)
		}
	})
	if n == 0 {
		return nil
	}
	more := ""
	if n > 1 {
		more = fmt.Sprintf(", or for %d more", n-1)
	}
	first.Cause = fmt.Errorf("nobody has waited for it%s: what used the result may have had the old one; add .Wait() to the call", more)
	return first
}
