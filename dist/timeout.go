package dist

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
)

// progressInterval is how often a waiting rank checks whether bytes have moved.
const progressInterval = 50 * time.Millisecond

// arm sets the deadline of by: the timeout after the last progress of l, or the next check for progress.
func (l *lane) arm(by *lane) context.Context {
	l.noteProgress()
	return by.deadline.set(min(l.timeLeft(), progressInterval))
}

// label gives the goroutine, which has waited since a time, the labels of the operation that is not over, unless it has those of number
// was, and returns its number. Only long waits have labels, because to make them takes memory.
func (l *lane) label(was uint64, since int64) uint64 {
	on, seq := l.current()
	if l.idle() || seq == was || time.Duration(l.c.now()-since) < time.Second {
		return was
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(l.c.labels, pprof.Labels("op", on.slot(seq).op.Kind.String(), "group", l.g.name, "seq",
		strconv.FormatUint(seq, 10))))
	return seq
}

// monitorGrace is how much longer than rank 0 the other ranks wait in a MonitoredBarrier. Rank 0 has the list of missing ranks, and all
// ranks should return this list. If another rank's wait ended at the same moment, it might see some of them arrive. One second is more
// than a busy machine delays rank 0. If rank 0 itself is missing, the others wait this much too long.
const monitorGrace = time.Second

// timeLeft is the time that the lane has until it must have made progress.
func (l *lane) timeLeft() time.Duration {
	d := l.g.timeout - time.Duration(l.c.now()-l.lastProgress)
	on, seq := l.current()
	if l.g.rank > 0 && on.slot(seq).op.Kind == backend.MonitoredBarrier {
		d += monitorGrace
	}
	if d <= 0 && on.overdue(l.g.timeout/2) { // stages of a pipeline wait for each other, and for one whose process is stopped
		d = progressInterval
	}
	return d
}

// overdue reports whether the job is about to lose a process.
func (l *lane) overdue(d time.Duration) bool {
	b, ok := l.be.(backend.Listener)
	return ok && b.Overdue(d)
}

// noteProgress checks whether bytes have moved since the last check.
func (l *lane) noteProgress() {
	on, _ := l.current()
	if n := on.bytesMoved(); n != l.wire {
		l.wire, l.lastProgress = n, l.c.now()
	}
}

// bytesMoved returns the bytes that this rank has moved or received for the lane. They show the progress of a long operation.
func (l *lane) bytesMoved() uint64 {
	if l.be == nil {
		return 0
	}
	k := l.be.Counters()
	n := k.Received.Load()
	for i := range k.Wire {
		n += k.Wire[i].Load()
	}
	return n
}

// expire is called when the deadline of by has passed. It fails the group unless there was progress. It checks once more first, because
// this process may have been stopped, and messages may have come in time.
func (l *lane) expire(by *lane) {
	if l.c.drive(); l.idle() {
		return
	}
	if l.noteProgress(); l.timeLeft() > 0 {
		return
	}
	on, seq := l.current()
	op := &on.slot(seq).op
	e := &Error{Rank: l.c.rank, Group: l.g.name, Op: op.Kind.String(), Seq: seq}
	e.Cause = backend.TimedOut(on.be, on.ranks, seq, l.g.timeout)
	if l.crowded {
		e.Cause = fmt.Errorf(
			"%w; %d operations of this lane are in flight, so the next %v waits for the first: wait for some, or receive, between them",
			e.Cause, backend.Depth, op.Kind)
	}
	if by.g != l.g {
		e.Cause = fmt.Errorf("%w; what group %s is to do next waits for it: it touches the same memory", e.Cause, by.g.name)
	}
	l.g.fail(e)
}
