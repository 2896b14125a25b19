package dist

import (
	"context"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
)

// progressInterval is how often a rank that waits checks whether bytes have moved.
const progressInterval = 50 * time.Millisecond

// arm sets the deadline of by for the timeout after the last sign of life of l, or for the next look.
func (l *lane) arm(by *lane) context.Context {
	l.noteProgress()
	return by.deadline.set(min(l.timeLeft(), progressInterval))
}

// monitorGrace is how much longer the other ranks wait in a MonitoredBarrier than rank 0, whose list of missing ranks is to
// be everybody's error: at the same moment, another one might see some of them arrive. It is more than a busy machine keeps
// rank 0 from its core, and what the others wait for nothing if rank 0 itself does not come.
const monitorGrace = time.Second

// timeLeft is the time that the lane has until its next sign of life.
func (l *lane) timeLeft() time.Duration {
	d := l.g.timeout - time.Duration(l.c.now()-l.lastProgress)
	if on, seq := l.current(); l.g.rank > 0 && on.slot(seq).op.Kind == backend.MonitoredBarrier {
		d += monitorGrace
	}
	return d
}

// noteProgress looks for bytes moved since the last look.
func (l *lane) noteProgress() {
	on, _ := l.current()
	if n := on.bytesMoved(); n != l.wire {
		l.wire, l.lastProgress = n, l.c.now()
	}
}

// bytesMoved returns the bytes that this rank has moved or got for the lane: a sign of life of an operation that takes long.
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

// expire is called when the deadline that by waits with is over. It fails the group unless there was a sign of life. It checks
// once more, because this process may have been stopped, and messages may have come in time.
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
	if by.g != l.g {
		e.Cause = fmt.Errorf("%w; what group %s is to do next waits for it: it touches the same memory", e.Cause, by.g.name)
	}
	l.g.fail(e)
}
