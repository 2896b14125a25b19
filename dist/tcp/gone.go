package tcp

import (
	"encoding/json"
	"fmt"
	"slices"
)

// lost handles the end of a connection that was not announced: every group with that peer fails. Should the peer be
// alive, it hears that the others go on without it.
func (e *Engine) lost(l *link, cause error) {
	l.lostNow.Do(func() {
		if e.absent(l, cause) {
			l.shut()
			return
		}
		cause = &lostError{cause}
		e.mu.Lock()
		closing := e.closing
		if !closing && e.gone == nil {
			e.gone, e.why = l, cause
		}
		first, why := e.gone, e.why
		e.mu.Unlock()
		if !closing {
			for _, g := range e.with(l) {
				err := g.blame(l.peer, cause)
				if slices.Contains(g.spec.Ranks, first.peer.Rank) { // l may have gone because of it
					err = g.blame(first.peer, why)
				}
				g.fail(err, true)
			}
			e.warn(lostWhileMeeting(first, why)) // last: those whom it ends must not be found lost before l
		}
		l.shut()
	})
}

// warn is rank 0's word to those that may still be waiting to meet a rank that is lost: it will not come.
func (e *Engine) warn(err error) {
	if e.cfg.Rank != 0 {
		return
	}
	for _, l := range e.links {
		if l != nil {
			l.post(&header{typ: frameReject, gen: e.cfg.Gen}, reason(err))
		}
	}
}

// rejected handles rank 0's word that the job will not start; to a rank that has met everyone it says nothing new.
func (e *Engine) rejected(l *link, h *header) error {
	b, err := l.payload(h)
	if err != nil || l.peer.Rank != 0 {
		return err
	}
	var why string
	if err := json.Unmarshal(b, &why); err != nil {
		return fmt.Errorf("broke the protocol: reject: %w", err)
	}
	e.refused(rejected(why))
	return nil
}

// with returns the opened groups that the peer of l is a member of.
func (e *Engine) with(l *link) []*group {
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

// departed handles a goodbye: whoever still waits for the peer will wait in vain.
func (e *Engine) departed(l *link) {
	l.goodbye.Store(true)
	e.mu.Lock()
	groups := make([]*group, 0, len(e.groups))
	for _, g := range e.groups {
		groups = append(groups, g)
	}
	e.mu.Unlock()
	for _, g := range groups {
		g.departed(l)
	}
}
