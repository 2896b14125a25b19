package dist

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/where"
)

// maxStack is how much of a rank's stack is printed, in bytes.
const maxStack = 8 << 10

// noteLate looks for ranks that did not arrive, when a group has failed: what they do now is soon over. It needs c.mu.
func (c *comm) noteLate(err error) {
	if late, ok := errors.AsType[*backend.Late](err); ok && len(late.Ranks) > 0 && c.tellLate != nil {
		c.tellLate(late.Ranks)
	}
}

// noteLate keeps the stacks of those of the ranks that are goroutines here. Only the first time counts.
func (j *job) noteLate(ranks []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lateNoted {
		return
	}
	j.lateNoted = true
	var b strings.Builder
	for _, r := range j.ranks {
		if slices.Contains(ranks, r.c.rank) && !r.ended.Load() && b.Len() < 4*maxStack {
			fmt.Fprintf(&b, "rank %d, for which others waited, was here:\n%s\n", r.c.rank, r.stack())
		}
	}
	j.late = b.String()
}

// lateText returns what noteLate found, once.
func (j *job) lateText() (text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	text, j.late = j.late, ""
	return text
}

// stack returns the stack of the rank's goroutine; "" if its function has not begun, or is over.
func (r *Rank) stack() string {
	name := r.goroutine.Load()
	if name == nil {
		return ""
	}
	stack := where.StackOf(*name)
	return stack[:min(len(stack), maxStack)]
}

// state is what the rank does, for the launcher. A rank that hangs inside an operation has no list of the last ones.
func (r *Rank) state() launch.State {
	s, last := launch.State{Stack: r.stack(), All: where.Stacks()}, make(chan string, 1)
	go func() { last <- flightText([]*Rank{r}, flightSize) }()
	select {
	case s.Last = <-last:
	case <-time.After(lastReport):
	}
	return s
}

// work counts what the rank did: operations that it began, and bytes that it moved. It does not wait for a rank that hangs inside an
// operation: this is no work.
func (r *Rank) work() uint64 {
	c := r.c
	if !c.mu.TryLock() {
		return r.worked
	}
	defer c.mu.Unlock()
	all, n := c.usage, uint64(0)
	for _, l := range c.lanes {
		l.addWire(&all)
	}
	for _, u := range all {
		n += u.calls + u.wire
	}
	r.worked = n
	return n
}
