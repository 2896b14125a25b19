package tcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// lost handles the end of a connection that was not announced: every group with that peer fails. If the peer is
// alive, it is told that the others go on without it.
func (e *Engine) lost(l *link, cause error) {
	l.lostOnce.Do(func() {
		if e.onLost(l, cause) {
			l.close()
			return
		}
		culprit := l
		if g := l.rejectedWith.Load(); g != nil {
			cause = g
			if 0 <= g.rank && g.rank < len(e.links) && e.links[g.rank] != nil {
				culprit = e.links[g.rank]
			}
		}
		cause = &lostError{cause}
		e.mu.Lock()
		closing := e.closing
		l.lostErr = cause
		if !closing && e.firstLost == nil {
			e.firstLost, culprit.lostErr = culprit, cause
		}
		first := e.firstLost
		e.mu.Unlock()
		if !closing {
			e.failGroups(e.groupsWith(l), func(g *group) *backend.Error {
				if slices.Contains(g.spec.Ranks, first.peer.Rank) { // l may have gone because of it
					return g.peerError(first.peer, first.lostErr)
				}
				return g.peerError(l.peer, cause)
			})
			e.tellLost(lostDuringRendezvous(first, first.lostErr)) // last: those whom it ends must not be found lost before l
		}
		e.peerUnreachable(l)
		l.close()
	})
}

// failGroups fails groups, those with an operation in flight first. A group without one, such as the world while two of its
// ranks exchange messages, reports the failure of a group below it that has an operation in flight, or has had one.
func (e *Engine) failGroups(groups []*group, cause func(g *group) *backend.Error) {
	busy, used := map[key]*backend.Error{}, map[key]*backend.Error{} // by parent
	for _, g := range groups {
		parent := key{g.spec.Parent, g.key.gen}
		switch issued, flying := g.progress(); {
		case flying:
			busy[parent] = cause(g)
			g.fail(busy[parent], true)
		case issued > 0:
			used[parent] = cause(g)
		}
	}
	for _, g := range groups {
		err := busy[g.key]
		if issued, _ := g.progress(); err == nil && issued == 0 {
			err = used[g.key]
		}
		if err == nil {
			err = cause(g)
		}
		g.fail(err, true)
	}
}

// tellLost tells the ranks that may still wait for a lost rank in the rendezvous that it will not come. Only rank 0 does.
func (e *Engine) tellLost(err error) {
	if e.cfg.Rank != 0 {
		return
	}
	for _, l := range e.links {
		if l != nil {
			l.post(&header{typ: frameReject, gen: e.cfg.Gen}, reason(err))
		}
	}
}

// receiveReject handles a peer's message that it gives the job up. Rank 0's ends the rendezvous; a rank that is connected to all
// others learns nothing new from it. The message of another rank is used when its connection ends.
func (e *Engine) receiveReject(w *wire, h *header) error {
	b, err := w.payload(h)
	if err != nil {
		return err
	}
	var why string
	if err := json.Unmarshal(b, &why); err != nil {
		return fmt.Errorf("broke the protocol: reject: %w", err)
	}
	if w.l.peer.Rank == 0 {
		e.onReject(rejected(why))
	} else {
		w.l.rejectedWith.Store(&lostRank{int(h.total), rejected(why)})
	}
	return nil
}

// lostRank is the loss of a rank while the ranks meet.
type lostRank struct {
	rank int
	error
}

func (e *lostRank) Unwrap() error { return e.error }

// abandon ends a rendezvous that failed: it tells the peers why, and closes the connections.
func (e *Engine) abandon(links []*link, err error) {
	blamed := e.cfg.Rank
	if lost := (*lostRank)(nil); errors.As(err, &lost) {
		blamed = lost.rank
	}
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	for _, l := range links {
		if e.cfg.Rank != 0 { // rank 0 has said it
			l.post(&header{typ: frameReject, gen: e.cfg.Gen, total: uint64(blamed)}, reason(err))
		}
		l.close()
	}
	e.wg.Wait()
}

// lostAmong returns the first connection that was lost to one of some ranks. e.mu is held.
func (e *Engine) lostAmong(ranks []int) *link {
	if e.firstLost != nil && slices.Contains(ranks, e.firstLost.peer.Rank) {
		return e.firstLost
	}
	for _, r := range ranks {
		if l := e.links[r]; l != nil && l.lostErr != nil {
			return l
		}
	}
	return nil
}

// groupsWith returns the opened groups that the peer of l is a member of.
func (e *Engine) groupsWith(l *link) []*group {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*group
	for _, g := range e.groups {
		if g.opened && slices.Contains(g.spec.Ranks, l.peer.Rank) {
			out = append(out, g)
		}
	}
	return out
}

// peerLeft handles the last goodbye: operations that still wait for the peer fail.
func (e *Engine) peerLeft(l *link) {
	l.closed.Store(true)
	e.mu.Lock()
	groups := make([]*group, 0, len(e.groups))
	for _, g := range e.groups {
		groups = append(groups, g)
	}
	e.mu.Unlock()
	for _, g := range groups {
		g.peerLeft(l)
	}
	e.peerUnreachable(l)
	e.wake()
	l.post(&header{typ: frameFarewell, gen: e.cfg.Gen}, nil)
}
