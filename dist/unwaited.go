package dist

import (
	"fmt"
	"log/slog"

	"github.com/ringo-ml/ringo/dist/backend"
)

// A program that does not wait for a Work may read a result before it is there, or change an input too early. So each lane knows the last
// operation for which somebody has waited: those before it are over as well. Waiting is Wait, WaitHost, Done that returned true, or Pending
// for package tensor, of the Work or of its Batch. A captured step waits for all at its end.

// settle says that the Work is not dropped.
func (w Work) settle() {
	switch {
	case w.l == nil:
	case w.l.be == nil:
		w.settleParts()
	default:
		w.l.settle(w.seq)
	}
}

// settleParts is settle for a batch.
func (w Work) settleParts() {
	w.l.c.mu.Lock()
	defer w.l.c.mu.Unlock()
	if w.l.issued-w.seq < backend.Depth {
		for _, p := range w.l.slot(w.seq).parts {
			p.l.settle(p.seq)
		}
	}
}

// settle notes that somebody waits for operation seq.
func (l *lane) settle(seq uint64) {
	for was := l.waited.Load(); was < seq && !l.waited.CompareAndSwap(was, seq); {
		was = l.waited.Load()
	}
}

// followed reports whether an operation of another lane, for which somebody has waited, came after the last one of l and uses the same
// memory: then it has waited for that one. It needs c.mu.
func (c *comm) followed(l *lane) bool {
	u, at := &l.uses[l.issued%backend.Depth], l.slot(l.issued).issued
	for _, on := range c.lanes {
		for seq := on.waited.Load(); on != l && seq > 0 && on.issued-seq < backend.Depth; seq-- {
			if on.slot(seq).issued >= at && on.uses[seq%backend.Depth].conflicts(u) {
				return true
			}
		}
	}
	return false
}

// warnUnwaited warns, once in a job, if the program has dropped the last operation of a lane that has succeeded. It needs c.mu. What the
// group's operations say of those of others would be forgotten with it.
func (g *group) warnUnwaited() {
	g.eachLane(func(l *lane) {
		if l.be == nil || l.waited.Load() >= l.issued || g.c.followed(l) {
			return
		}
		g.c.warnOnce.Do(func() {
			slog.Warn(fmt.Sprintf("nobody has waited for %v seq %d of group %s: what used its result may have had the old one; "+
				"write .Wait() behind the call", l.slot(l.issued).op.Kind, l.issued, g.name), "rank", g.c.rank)
		})
	})
	for _, l := range g.c.lanes {
		if l.be != nil && g.c.followed(l) {
			l.settle(l.issued)
		}
	}
}
