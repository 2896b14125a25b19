package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/acceptor"
	"github.com/ringo-ml/ringo/internal/ranks"
)

// rejectGrace is how long rank 0 stays to say why there will be no job.
const rejectGrace = 500 * time.Millisecond

// rendezvous is a rendezvous in progress.
type rendezvous struct {
	e        *Engine
	conf     *tls.Config
	cancel   context.CancelCauseFunc // of the context that everything here waits with
	acceptor *acceptor.Acceptor

	mu        sync.Mutex
	allHere   bool          // everyone is here: no rank may join again
	connected bool          // and connected: a rank that leaves now is lost
	failed    error         // ends the rendezvous for everyone
	rejected  int           // ranks that came too late for anything but failed
	changed   chan struct{} // something to look at
}

func (rv *rendezvous) signal() {
	select {
	case rv.changed <- struct{}{}:
	default:
	}
}

// fail ends the rendezvous with its first error.
func (rv *rendezvous) fail(err error) {
	rv.mu.Lock()
	if rv.failed == nil {
		rv.failed = err
	}
	rv.mu.Unlock()
	rv.cancel(err)
	rv.signal()
}

// firstFailure returns the error that ended the rendezvous, or else err. Who was misrouted knows best, even when the others have
// already missed it.
func (rv *rendezvous) firstFailure(err error) error {
	rv.mu.Lock()
	defer rv.mu.Unlock()
	if rv.failed != nil && !errors.Is(err, errMisrouted) {
		return rv.failed
	}
	return err
}

// runRankZero is rank 0's part: wait for everyone, then send the table and let them connect.
func (rv *rendezvous) runRankZero(ctx context.Context) error {
	l, err := rv.listen(ctx)
	if err != nil {
		return err
	}
	rv.acceptor = rv.newAcceptor(l, rv.acceptJoin)
	defer rv.acceptor.Close()
	err = rv.awaitLinks(ctx, func(*link) bool { return true })
	if err == nil {
		err = rv.sendTable()
	}
	if err == nil {
		err = rv.awaitLinks(ctx, (*link).complete)
	}
	if err != nil {
		rv.rejectAll(err)
	}
	return err
}

// rejectAll tells those who are here why there will be no job; when ranks disagree it waits a moment for the rest.
func (rv *rendezvous) rejectAll(err error) {
	here := rv.links()
	for _, l := range here {
		l.post(&header{typ: frameReject, gen: rv.e.cfg.Gen}, reason(err))
	}
	t := time.NewTimer(rejectGrace)
	defer t.Stop()
	for {
		rv.mu.Lock()
		enough := rv.failed == nil || len(here)+rv.rejected >= rv.e.cfg.Size-1
		rv.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-rv.changed:
		case <-t.C:
			return
		}
	}
}

// runOthers is the part of every other rank: meet rank 0, get the table, connect to the rest.
func (rv *rendezvous) runOthers(ctx context.Context) error {
	l, err := rv.listen(ctx)
	if err != nil {
		return err
	}
	rv.e.self.Addr = l.Addr().String()
	rv.acceptor = rv.newAcceptor(l, rv.acceptMesh)
	defer rv.acceptor.Close()
	c, zero, err := dial(ctx, rv.conf, rv.e.cfg.Addr, member{}, rv.hello(false))
	if err != nil {
		return err
	}
	table, err := rv.readTable(ctx, c)
	if err != nil {
		c.NetConn().Close()
		return err
	}
	return rv.connect(ctx, rv.addDialed(zero, c), table)
}

// connect makes the rest of the connections: rank 0's for data, and all of those to the ranks below this one.
func (rv *rendezvous) connect(ctx context.Context, zero *link, table []member) error {
	err := rv.dialData(ctx, zero, rv.e.cfg.Addr)
	for r := 1; r < rv.e.cfg.Rank && err == nil; r++ {
		var c *tls.Conn
		if c, _, err = dial(ctx, rv.conf, table[r].Addr, table[r], rv.hello(true)); err == nil {
			err = rv.dialData(ctx, rv.addDialed(table[r], c), table[r].Addr)
		}
	}
	if err != nil && !errors.Is(err, errClosing) { // else its reader has found the reason, and ends the rendezvous
		return rv.firstFailure(err)
	}
	return rv.awaitLinks(ctx, (*link).complete)
}

// awaitLinks waits until a link to every rank is there that is ready.
func (rv *rendezvous) awaitLinks(ctx context.Context, ready func(*link) bool) error {
	for {
		missing, err := rv.missing(ready)
		if err != nil || len(missing) == 0 {
			return err
		}
		select {
		case <-rv.changed:
		case <-ctx.Done():
			err := fmt.Errorf("tcp: %w: waiting for %s of %d", context.Cause(ctx), ranks.Names(missing...), rv.e.cfg.Size)
			if why := rv.acceptor.Err(); why != nil {
				err = fmt.Errorf("%w, which could not connect: %w", err, why)
			}
			return rv.e.cfg.explainMissing(err)
		}
	}
}

// missing returns the ranks that are not connected yet. When there is none, no rank may join any more. When all
// connections are complete, a rank that leaves is lost.
func (rv *rendezvous) missing(ready func(*link) bool) ([]int, error) {
	rv.mu.Lock()
	defer rv.mu.Unlock()
	if rv.failed != nil {
		return nil, rv.failed
	}
	var missing []int
	complete := true
	for r, l := range rv.e.links {
		if r != rv.e.cfg.Rank && (l == nil || !ready(l)) {
			missing = append(missing, r)
		}
		complete = complete && (r == rv.e.cfg.Rank || l != nil && l.complete())
	}
	rv.allHere = rv.allHere || len(missing) == 0
	rv.connected = complete
	return missing, nil
}

func (rv *rendezvous) links() []*link {
	rv.mu.Lock()
	defer rv.mu.Unlock()
	var out []*link
	for _, l := range rv.e.links {
		if l != nil {
			out = append(out, l)
		}
	}
	return out
}

// linkLost handles the end of a connection. At rank 0, the rank may come again until everyone is here; then it is lost. Other ranks
// have the table, and a lost rank does not come again. They wait a moment, because rank 0 may say who was lost first.
func (rv *rendezvous) linkLost(l *link, cause error) bool {
	rv.mu.Lock()
	defer rv.mu.Unlock()
	r := l.peer.Rank
	if rv.connected || rv.e.links[r] != l {
		return false
	}
	rv.e.links[r] = nil
	lost := lostDuringRendezvous(l, cause)
	if g := l.rejectedWith.Load(); g != nil {
		lost = g
	}
	switch {
	case rv.e.cfg.Rank == 0 && !rv.allHere:
		rv.signal()
	case r == 0 || rv.e.cfg.Rank == 0:
		go rv.fail(lost)
	default:
		time.AfterFunc(closeGrace, func() { rv.fail(lost) })
	}
	return true
}

func lostDuringRendezvous(l *link, cause error) error {
	return &lostRank{l.peer.Rank, fmt.Errorf("tcp: %v was lost while the ranks met: %w", l.peer, cause)}
}

// addDialed makes a link of a connection that is through with its hello.
func (rv *rendezvous) addDialed(peer member, c *tls.Conn) *link {
	l := newLink(rv.e, peer, c)
	l.expect()
	rv.mu.Lock()
	rv.e.links[peer.Rank] = l
	rv.mu.Unlock()
	l.start()
	rv.signal()
	return l
}
