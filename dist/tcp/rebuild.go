package tcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/agree"
)

const (
	anotherTry = 20 * time.Millisecond // between two ballots, and up to twice that: leaders must not keep step
	maxRounds  = 4096
)

// round is this rank's part in the agreement on the next generation of one group.
type round struct {
	e       *Engine
	key     key
	ranks   []int // of the old group
	changed chan struct{}

	mu   sync.Mutex
	node *agree.Node
}

// rebuildFrame is the payload of frameRebuild. Ranks are those of the old group: a rank may hear of a group's end before
// it has opened the group.
type rebuildFrame struct {
	Ranks []int
	agree.Message
}

// do changes the node and wakes who waits for it.
func (r *round) do(change func(v *agree.Node)) {
	r.mu.Lock()
	change(r.node)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// send posts a message to a member; mu is held.
func (r *round) send(to int, m agree.Message) {
	b, err := json.Marshal(rebuildFrame{r.ranks, m})
	if err == nil && len(b) <= maxPayload {
		r.e.links[r.ranks[to]].post(&header{typ: frameRebuild, gen: r.key.gen, group: r.key.id}, b)
	}
}

// round returns the agreement about a group, made when it is first heard of.
func (e *Engine) round(k key, ranks []int) (*round, error) {
	me, sorted := slices.Index(ranks, e.cfg.Rank), slices.Compact(slices.Sorted(slices.Values(ranks)))
	if me < 0 || len(sorted) != len(ranks) || sorted[0] < 0 || sorted[len(sorted)-1] >= e.cfg.Size {
		return nil, fmt.Errorf("group of ranks %v", ranks)
	}
	e.mu.Lock()
	r := e.rounds[k]
	if r != nil || len(e.rounds) == maxRounds {
		e.mu.Unlock()
		if r == nil || !slices.Equal(r.ranks, ranks) {
			return nil, fmt.Errorf("group of ranks %v is not the expected group, or there are too many groups", ranks)
		}
		return r, nil
	}
	r = &round{e: e, key: k, ranks: slices.Clone(ranks), changed: make(chan struct{}, 1)}
	r.node = agree.New(len(ranks), me, r.send)
	e.rounds[k] = r
	var gone []int
	for i, rank := range ranks {
		if l := e.links[rank]; l != nil && (l.why != nil || l.goodbye.Load()) {
			gone = append(gone, i)
		}
	}
	e.mu.Unlock()
	r.do(func(v *agree.Node) {
		for _, i := range gone {
			v.Lost(i)
		}
	})
	return r, nil
}

// unreachable tells all agreements that the peer of l is lost, or has left.
func (e *Engine) unreachable(l *link) {
	e.mu.Lock()
	var rounds []*round
	for _, r := range e.rounds {
		rounds = append(rounds, r)
	}
	e.mu.Unlock()
	for _, r := range rounds {
		if i := slices.Index(r.ranks, l.peer.Rank); i >= 0 {
			r.do(func(v *agree.Node) { v.Lost(i) })
		}
	}
}

// rebuildMessage hands a frame to the agreement that it belongs to.
func (e *Engine) rebuildMessage(w *wire, h *header) error {
	l := w.l
	b, err := w.payload(h)
	if err != nil {
		return err
	}
	var f rebuildFrame
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("broke the protocol: rebuild: %w", err)
	}
	k := key{h.group, h.gen}
	e.mu.Lock()
	early := !e.met && len(e.heard) < maxRounds
	if early { // this rank still waits for connections
		e.heard = append(e.heard, func() {
			if err := e.rebuildHeard(l, k, &f); err != nil {
				e.lost(l, err)
			}
		})
	}
	e.mu.Unlock()
	if early {
		return nil
	}
	return e.rebuildHeard(l, k, &f)
}

func (e *Engine) rebuildHeard(l *link, k key, f *rebuildFrame) error {
	from := slices.Index(f.Ranks, l.peer.Rank)
	if from < 0 {
		return fmt.Errorf("broke the protocol: rebuild of ranks %v", f.Ranks)
	}
	err := f.Check(len(f.Ranks))
	var r *round
	if err == nil {
		r, err = e.round(k, f.Ranks)
	}
	if err != nil {
		return fmt.Errorf("broke the protocol: rebuild: %w", err)
	}
	r.do(func(v *agree.Node) { v.Handle(from, f.Message) })
	return nil
}

// Survivors agrees with the other members of a failed group on who goes on (see backend.Rebuilder).
func (e *Engine) Survivors(ctx context.Context, s backend.Spec, patience time.Duration) ([]int, error) {
	k := key{s.ID, e.cfg.Gen + s.Gen}
	r, err := e.round(k, s.Ranks)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	// A leader that is stopped is lost after the engine's timeout; then the next one needs a moment.
	limit, cancel := context.WithTimeout(ctx, patience+2*e.cfg.Timeout+time.Second)
	defer cancel()
	decided, err := r.settle(limit, patience)
	if err != nil {
		r.do((*agree.Node).Leave)
		if limit.Err() != nil && ctx.Err() == nil {
			err = errors.New("the survivors came to no agreement in time")
		}
		return nil, err
	}
	ranks, err := agree.Outcome(decided, s.Rank, s.Ranks, s.Gen)
	if err == nil {
		e.leaveBehind(ranks)
	}
	return ranks, err
}

// settle takes part until there is a decision.
func (r *round) settle(ctx context.Context, patience time.Duration) ([]int, error) {
	r.do((*agree.Node).Join)
	enough := time.NewTimer(patience)
	defer enough.Stop()
	try := time.NewTimer(anotherTry)
	defer try.Stop()
	for {
		r.mu.Lock()
		decided, hopeless, here := r.node.Decided(), r.node.Hopeless(), r.node.Here()
		r.mu.Unlock()
		switch {
		case decided != nil:
			return decided, nil
		case hopeless:
			return nil, agree.TooFew(here, r.ranks, r.key.gen-r.e.cfg.Gen)
		}
		select {
		case <-r.changed:
		case <-enough.C:
			r.do((*agree.Node).Hurry)
		case <-try.C:
			r.do((*agree.Node).Tick)
			try.Reset(anotherTry + rand.N(anotherTry))
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.e.stop:
			return nil, errors.New("the engine is closed")
		}
	}
}

// leaveBehind forgets the failures that led to a new generation of some ranks: what is lost from now on is another matter.
func (e *Engine) leaveBehind(ranks []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lateErr = nil
	if e.gone != nil && !slices.Contains(ranks, e.gone.peer.Rank) {
		e.gone = e.lostAmong(ranks)
	}
}
