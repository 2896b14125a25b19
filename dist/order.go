package dist

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Operations of one rank that use the same memory take effect in the order in which they were issued. Engines do not guarantee this: some
// read an input as soon as it is posted, lanes are independent, and peers write into outputs. So before an engine gets an operation, the
// operation waits for those in flight whose result it reads or overwrites, and for those that still read what it overwrites. Two
// operations that only read the same memory run at the same time. If the device can wait instead of the host, it does (backend.DeviceUser),
// and later computation waits, too.

// span is memory from address lo up to hi. The zero value is empty.
type span struct{ lo, hi uintptr }

func spanOf(m backend.Mem) span {
	if m.Bytes == 0 {
		return span{}
	}
	lo := uintptr(m.Ptr)
	return span{lo, lo + uintptr(m.Bytes)}
}

func (a span) overlaps(b span) bool { return a.lo < b.hi && b.lo < a.hi }

// use is the memory of the program that an operation reads and writes.
type use struct{ read, written span }

func (g *group) useOf(c *call) use {
	u := use{spanOf(c.src), spanOf(c.dst)}
	switch {
	case c.kind == backend.Broadcast && c.root == g.rank: // the root only reads its value
		u.written = span{}
	case u.read == u.written:
		u.read = span{}
	}
	return u
}

// conflicts reports whether the order of two operations matters.
func (u *use) conflicts(v *use) bool {
	return u.written.overlaps(v.written) || u.written.overlaps(v.read) || u.read.overlaps(v.written)
}

// awaitConflicts blocks until no operation in flight conflicts with what lane l will issue. If such an operation failed, and the program
// has not seen the error, this is an error here, too, because the result would depend on wrong data. It needs c.mu.
func (c *comm) awaitConflicts(l *lane, u *use) error {
	if len(c.unreported) > 0 {
		if err := c.failedDependency(u); err != nil {
			return err
		}
	}
	for i := 0; i < len(c.active); {
		on := c.active[i]
		seq := on.conflict(u)
		if seq == 0 {
			i++
			continue
		}
		if err := c.waitFor(background, l, on, seq, true); err != nil {
			return err
		}
		i = 0 // begin again: during the wait, lanes have changed
	}
	return nil
}

// failedDependency returns the failure of an operation that conflicts with u, if the program has not seen it.
func (c *comm) failedDependency(u *use) (err error) {
	c.unreported = slices.DeleteFunc(c.unreported, func(g *group) bool { return g.reported || g.closed })
	for _, g := range c.unreported {
		g.eachLane(func(l *lane) {
			if l.conflict(u) > 0 {
				err = g.err
			}
		})
	}
	return err
}

// conflict returns the number of the last operation in flight that conflicts with u; 0 if there is none. When it is over, all before it
// are over.
func (l *lane) conflict(u *use) uint64 {
	for seq, past := l.issued, max(l.done.Load(), l.ordered.Load()); seq > past; seq-- {
		if l.issued-seq == backend.Depth { // the group has failed, and the uses of older operations are not known
			return seq
		}
		if l.uses[seq%backend.Depth].conflicts(u) {
			return seq
		}
	}
	return 0
}
