package local

import (
	"context"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/agree"
)

// agreement is how the members agree on the next generation of a group. Ranks that share memory need no messages for it.
type agreement struct {
	present []bool // by member: waits in Survivors
	decided []int
	changed chan struct{} // closed and replaced at each change
}

// change wakes those who wait. Hub.mu is held.
func (r *agreement) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Leave says that this rank is done.
func (e *Engine) Leave() {
	h := e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returned[e.rank] = true
	for _, r := range h.agreements {
		r.change()
	}
}

// Survivors agrees with the other members of a failed group on who goes on (see backend.Rebuilder).
func (e *Engine) Survivors(ctx context.Context, s backend.Spec, timeout time.Duration) ([]int, error) {
	h, k := e.hub, key{s.ID, s.Gen}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.agreements[k]
	if r == nil {
		r = &agreement{present: make([]bool, len(s.Ranks)), changed: make(chan struct{})}
		h.agreements[k] = r
	}
	r.present[s.Rank] = true
	r.change()
	enough := time.NewTimer(timeout)
	defer enough.Stop()
	for hurried := false; ; {
		err := h.tryDecide(r, &s, hurried)
		if r.decided != nil {
			return agree.Outcome(r.decided, s.Rank, s.Ranks, s.Gen)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			r.present[s.Rank] = false
			return nil, err
		}
		changed := r.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-enough.C:
			hurried = true
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
}

// tryDecide decides when all members are here that may still come, or when nobody waits any longer (hurried). It is an error if there are
// too few.
func (h *Hub) tryDecide(r *agreement, s *backend.Spec, hurried bool) error {
	var here []int
	waiting := false
	for i, rank := range s.Ranks {
		switch {
		case r.present[i] && !h.returned[rank]:
			here = append(here, i)
		case !h.returned[rank]:
			waiting = true
		}
	}
	if r.decided != nil || waiting && !hurried {
		return nil
	}
	if !agree.Quorum(len(s.Ranks), len(here), slices.Contains(here, 0)) {
		return agree.TooFew(here, s.Ranks, s.Gen)
	}
	r.decided = here
	r.change()
	return nil
}
