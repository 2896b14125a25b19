package tcp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
)

// writeGrace is how long a worker of a failed group may still write to a peer. Then somebody checks whether that peer is alive: a
// peer that is alive reads.
const writeGrace = 100 * time.Millisecond

// lostError is the cause of a failure by which a rank was found to be lost: no word of its own.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// fail ends the group with its first error. Who finds an error tells the others.
func (g *group) fail(err error, tell bool) {
	if above := g.e.failedAbove(g); above != nil {
		err, tell = above, false // its failure is on the way to this group, and what happened here may follow from it
	}
	e, ok := err.(*backend.Error)
	if !ok {
		g.mu.Lock()
		e = &backend.Error{Rank: g.e.cfg.Rank, Host: g.e.self.where(), Group: g.spec.Name, Seq: g.done, Cause: err}
		g.mu.Unlock()
	}
	g.failWith(e, e, tell)
}

// receiveError ends the group with an error that a peer found. It is passed on. Otherwise this rank might leave
// before the others have read the error, and they would take that for the cause. If this rank is the one that is reported as
// lost, but is alive, the others go on without it.
func (g *group) receiveError(e *backend.Error) {
	here := *e
	if lost := (*lostError)(nil); e.Rank == g.e.cfg.Rank && errors.As(e.Cause, &lost) {
		here.Cause = fmt.Errorf("generation %d is over: %w", g.key.gen-g.e.cfg.Gen, e.Cause)
	}
	g.failWith(&here, e, true)
}

func (g *group) failWith(e, others *backend.Error, tell bool) {
	g.mu.Lock()
	if g.err != nil {
		g.mu.Unlock()
		return
	}
	g.err = e
	pipes := make([]*pipe, 0, len(g.pipes))
	for _, p := range g.pipes {
		pipes = append(pipes, p)
		if tell { // before anyone here can see the error and say goodbye
			g.e.postAbort(p.link, g.key, others)
		}
	}
	g.wakeAll()
	g.work.Broadcast()
	mem := g.mem
	g.mu.Unlock()
	if mem != nil {
		mem.end.Fail()
	}
	for _, p := range pipes {
		p.end(e)
	}
	g.e.failChildren(g, e)
	g.e.wake()
	time.AfterFunc(writeGrace, func() { g.unblock(nil) })
}

// unblock frees a worker that is still writing to a peer that has not given a sign of life lately. A peer that has given one may be
// slow. It checks twice: if this process was stopped, it first reads what came meanwhile.
func (g *group) unblock(silent *link) {
	l := g.writing.Load()
	switch {
	case l == nil:
		return
	case g.e.now()-l.heard.Load() <= int64(3*g.e.period()):
		silent = nil
	case l == silent:
		g.e.lost(l, fmt.Errorf("rank %d: no progress: it does not read", l.peer.Rank))
		return
	default:
		silent = l
	}
	time.AfterFunc(writeGrace, func() { g.unblock(silent) })
}

// sendEnd tells the members once that this rank issues nothing more: tag 1 says in no group.
func (g *group) sendEnd(tag uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.endSent || g.err != nil {
		return
	}
	g.endSent = true
	for _, p := range g.peers {
		if p != nil {
			p.link.post(&header{typ: frameEnd, gen: g.key.gen, group: g.key.id, seq: g.issued, tag: tag}, nil)
		}
	}
}

// peerEnded handles a member's word that it issues nothing after operation h.seq. What waits for more fails at once.
func (g *group) peerEnded(p *pipe, h *header) {
	g.mu.Lock()
	if p.over == nil {
		p.last, p.over = h.seq, backend.ErrClosed
	}
	if h.tag == 1 {
		p.over = backend.ErrLeft
	}
	running, seq := g.running, g.done+1
	g.goodbyes.Store(true)
	g.mu.Unlock()
	g.e.wake()
	if running {
		if err := g.Deserted(seq); err != nil {
			g.fail(err, true)
		}
	}
}

// openMembers counts the members that have not said where they end.
func (g *group) openMembers() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.peers {
		if p != nil && p.over == nil {
			n++
		}
	}
	return n
}

// Deserted returns the failure of operation seq when a member will never issue it.
func (g *group) Deserted(seq uint64) error {
	g.mu.Lock()
	var p *pipe
	var why error
	for _, q := range g.peers {
		if q != nil && q.over != nil && q.last < seq {
			p, why = q, q.over
			break
		}
	}
	g.mu.Unlock()
	if p == nil {
		return nil
	}
	return g.peerError(p.link.peer, why)
}

func (g *group) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// peerError returns the error of a group that a peer has let down, with the operation in flight, or else the last one, or else the
// making of the group.
func (g *group) peerError(peer member, cause error) *backend.Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &backend.Error{Rank: peer.Rank, Host: peer.where(), Op: "making", Group: g.spec.Name, Seq: g.done, Cause: cause}
	if g.issued > g.done {
		e.Seq = g.done + 1
	}
	if e.Seq > 0 {
		e.Op = g.ops.At(e.Seq).Copy.Asked().String()
	}
	return e
}

// awaitFailure waits until the group has failed: the peer of l knows why, and says so unless it is gone.
func (g *group) awaitFailure(l *link) error {
	g.mu.Lock()
	for g.err == nil && !l.unusable.Load() {
		g.cond.Wait()
	}
	err := g.err
	g.mu.Unlock()
	if err == nil {
		return g.peerError(l.peer, backend.ErrLeft)
	}
	return err
}

// writeFailed handles a write that failed. The reader of the connection finds out why.
func (g *group) writeFailed(l *link, err error) error {
	if l.goodbye.Load() {
		return g.peerError(l.peer, backend.ErrLeft)
	}
	l.failed(err)
	return g.awaitFailure(l)
}

// peerLeft handles the goodbye of a peer.
func (g *group) peerLeft(l *link) {
	g.mu.Lock()
	p := g.pipes[l.peer.Rank]
	g.goodbyes.Store(true)
	g.wakeAll()
	g.mu.Unlock()
	if p != nil {
		g.peerEnded(p, &header{tag: 1}) // it has said where it ends, unless it never opened the group
		p.end(nil)
	}
}

// drain waits until no operation is in flight; at the deadline it fails the group.
func (g *group) drain(deadline time.Time) {
	if g.mem != nil {
		g.mem.drain(deadline)
		return
	}
	t := time.AfterFunc(time.Until(deadline), func() {
		g.fail(errors.New("closed with operations in flight"), true)
	})
	defer t.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.running || g.err == nil && g.done < g.issued {
		g.cond.Wait()
	}
}

// stopWorker ends the worker's goroutine.
func (g *group) stopWorker() {
	g.mu.Lock()
	g.closing = true
	g.work.Broadcast()
	g.mu.Unlock()
}

// progress returns the last operation that was issued, and whether any is in flight.
func (g *group) progress() (issued uint64, flying bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.issued, g.issued > g.done
}

// receiveStatus notes how far a peer is.
func (g *group) receiveStatus(rank int, h *header) {
	g.mu.Lock()
	if h.total == g.asked {
		g.answers[rank] = h.seq
		g.wakeAll()
	}
	g.mu.Unlock()
}

// Suspects returns the ranks that operation seq waits for. Absent ranks have not issued it. Stalled ranks do not
// answer. If there are none of both, it is the rank to which this one writes, or else the one whose message it waits for.
func (g *group) Suspects(seq uint64) (absent, stalled []int) {
	absent, stalled = g.ask(seq)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.monitors(seq) && g.spec.Rank == 0 { // each member sends it a message
		unheard := func(i int) bool { return g.peers[i].begun.Load() < seq }
		for _, i := range stalled {
			if unheard(i) {
				absent = append(absent, i)
			}
		}
		stalled = slices.DeleteFunc(stalled, unheard)
		slices.Sort(absent)
	}
	if len(absent)+len(stalled) == 0 && g.done < seq {
		who := int(g.waitsFor.Load())
		if l := g.writing.Load(); l != nil {
			who = slices.Index(g.spec.Ranks, l.peer.Rank)
		}
		stalled = append(stalled, who)
	}
	return absent, stalled
}

// Overdue reports whether a peer is given up within d, half the timeout at most, unless it gives a sign of life (see watch).
func (g *group) Overdue(d time.Duration) bool {
	now, t := g.e.now(), g.e.cfg.Timeout
	return slices.ContainsFunc(g.e.links, func(l *link) bool {
		return l != nil && !l.unusable.Load() && !l.goodbye.Load() && now-l.heard.Load() > int64(t-min(d, t/2))
	})
}

// monitors reports whether operation seq is a MonitoredBarrier: a rank that does not answer counts as absent, too.
func (g *group) monitors(seq uint64) bool {
	return g.ops.At(seq).Copy.Kind == backend.MonitoredBarrier
}

// ask asks all peers how far they are, and waits a moment for the answers. Absent ranks have not issued operation seq.
// Silent ones did not answer: their process is stopped or unreachable.
func (g *group) ask(seq uint64) (absent, silent []int) {
	g.mu.Lock()
	g.asked++
	clear(g.answers)
	ask := header{typ: frameQuery, gen: g.key.gen, group: g.key.id, total: g.asked}
	g.mu.Unlock()
	asked, left := 0, map[int]bool{}
	for i, p := range g.peers {
		if p == nil {
			continue
		}
		g.mu.Lock()
		left[i] = p.over != nil
		g.mu.Unlock()
		if !left[i] {
			p.link.post(&ask, nil)
			asked++
		}
	}
	g.awaitAnswers(asked)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, p := range g.peers {
		if p == nil {
			continue
		}
		last, ok := g.answers[p.link.peer.Rank]
		if left[i] {
			last, ok = p.last, true
		}
		switch {
		case ok && last < seq:
			absent = append(absent, i)
		case !ok:
			silent = append(silent, i)
		}
	}
	return absent, silent
}

// awaitAnswers waits until so many peers have answered the last question, for answerTimeout at most.
func (g *group) awaitAnswers(n int) {
	late := false
	t := time.AfterFunc(answerTimeout, func() {
		g.mu.Lock()
		late = true
		g.wakeAll()
		g.mu.Unlock()
	})
	defer t.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.answers) < n && !late {
		g.cond.Wait()
	}
}
