package dist

import (
	"runtime"
	"slices"
	"sync"
	"weak"
)

// A Group that the program has dropped without Close is closed by the rank, when it makes its next group: Go's garbage collector tells it.
// Close is not collective, and this rank calls no more operations of the group, so that peers lose nothing. Methods keep their Group alive
// until what they call has noted the operation.

// dropped are the groups of a rank whose Group is garbage.
type dropped struct {
	mu   sync.Mutex
	list []*group
}

// handle returns the Group that the program holds of g. The cleanup has a weak pointer, because g leads to the rank and its other groups.
func (g *group) handle() *Group {
	made := &Group{group: g}
	runtime.AddCleanup(made, func(w weak.Pointer[group]) {
		if g := w.Value(); g != nil {
			g.c.dropped.mu.Lock()
			defer g.c.dropped.mu.Unlock()
			g.c.dropped.list = append(g.c.dropped.list, g)
		}
	}, weak.Make(g))
	return made
}

// reap closes dropped groups. Those that still have something to do or to tell, or from which groups were made, stay for a later call.
func (c *comm) reap() {
	c.dropped.mu.Lock()
	list := c.dropped.list
	c.dropped.list = nil
	c.dropped.mu.Unlock()
	if len(list) == 0 {
		return
	}
	c.mu.Lock()
	list = slices.DeleteFunc(list, func(g *group) bool {
		if !g.closed && !g.spare() {
			return false
		}
		_ = g.end() // nothing waits for what it would say of memory
		return true
	})
	c.mu.Unlock()
	c.dropped.mu.Lock()
	defer c.dropped.mu.Unlock()
	c.dropped.list = append(c.dropped.list, list...)
}

// spare reports whether nothing needs the group any more but its memory. It needs c.mu.
func (g *group) spare() bool {
	ok := !g.captured.Load() && (g.err == nil || g.reported || g.victim == "")
	g.eachLane(func(l *lane) { ok = ok && l.idle() })
	return ok && !slices.ContainsFunc(g.c.lanes, func(l *lane) bool { return l.g.parent == g })
}
