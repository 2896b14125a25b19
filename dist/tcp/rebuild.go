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
	ballotInterval = 20 * time.Millisecond // between two ballots, and up to twice that: leaders must not keep step
	maxAgreements  = 4096
)

// agreement is this rank's part in the agreement on the next generation of one group.
type agreement struct {
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
func (a *agreement) do(change func(v *agree.Node)) {
	a.mu.Lock()
	change(a.node)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// send posts a message to a member; mu is held.
func (a *agreement) send(to int, m agree.Message) {
	b, err := json.Marshal(rebuildFrame{a.ranks, m})
	if err == nil && len(b) <= maxPayload {
		a.e.links[a.ranks[to]].post(&header{typ: frameRebuild, gen: a.key.gen, group: a.key.id}, b)
	}
}

// agreement returns the agreement about a group, made when it is first heard of.
func (e *Engine) agreement(k key, ranks []int) (*agreement, error) {
	me, sorted := slices.Index(ranks, e.cfg.Rank), slices.Compact(slices.Sorted(slices.Values(ranks)))
	if me < 0 || len(sorted) != len(ranks) || sorted[0] < 0 || sorted[len(sorted)-1] >= e.cfg.Size {
		return nil, fmt.Errorf("group of ranks %v", ranks)
	}
	e.mu.Lock()
	r := e.agreements[k]
	if r != nil || len(e.agreements) == maxAgreements {
		e.mu.Unlock()
		if r == nil || !slices.Equal(r.ranks, ranks) {
			return nil, fmt.Errorf("group of ranks %v is not the expected group, or there are too many groups", ranks)
		}
		return r, nil
	}
	r = &agreement{e: e, key: k, ranks: slices.Clone(ranks), changed: make(chan struct{}, 1)}
	r.node = agree.New(len(ranks), me, r.send)
	e.agreements[k] = r
	var lost []int
	for i, rank := range ranks {
		if l := e.links[rank]; l != nil && (l.lostErr != nil || l.goodbye.Load()) {
			lost = append(lost, i)
		}
	}
	e.mu.Unlock()
	r.do(func(v *agree.Node) {
		for _, i := range lost {
			v.Lost(i)
		}
	})
	return r, nil
}

// peerUnreachable tells all agreements that the peer of l is lost, or has left.
func (e *Engine) peerUnreachable(l *link) {
	e.mu.Lock()
	var rounds []*agreement
	for _, r := range e.agreements {
		rounds = append(rounds, r)
	}
	e.mu.Unlock()
	for _, r := range rounds {
		if i := slices.Index(r.ranks, l.peer.Rank); i >= 0 {
			r.do(func(v *agree.Node) { v.Lost(i) })
		}
	}
}

// receiveRebuild hands a frame to the agreement that it belongs to.
func (e *Engine) receiveRebuild(w *wire, h *header) error {
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
	early := !e.connected && len(e.earlyRebuilds) < maxAgreements
	if early { // this rank still waits for connections
		e.earlyRebuilds = append(e.earlyRebuilds, func() {
			if err := e.handleRebuild(l, k, &f); err != nil {
				e.lost(l, err)
			}
		})
	}
	e.mu.Unlock()
	if early {
		return nil
	}
	return e.handleRebuild(l, k, &f)
}

func (e *Engine) handleRebuild(l *link, k key, f *rebuildFrame) error {
	from := slices.Index(f.Ranks, l.peer.Rank)
	if from < 0 {
		return fmt.Errorf("broke the protocol: rebuild of ranks %v", f.Ranks)
	}
	err := f.Check(len(f.Ranks))
	var r *agreement
	if err == nil {
		r, err = e.agreement(k, f.Ranks)
	}
	if err != nil {
		return fmt.Errorf("broke the protocol: rebuild: %w", err)
	}
	r.do(func(v *agree.Node) { v.Handle(from, f.Message) })
	return nil
}

// Survivors agrees with the other members of a failed group on who goes on (see backend.Rebuilder).
func (e *Engine) Survivors(ctx context.Context, s backend.Spec, timeout time.Duration) ([]int, error) {
	k := key{s.ID, e.cfg.Gen + s.Gen}
	r, err := e.agreement(k, s.Ranks)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	// A leader that is stopped is lost after the engine's timeout; then the next one needs a moment.
	limit, cancel := context.WithTimeout(ctx, timeout+2*e.cfg.Timeout+time.Second)
	defer cancel()
	decided, err := r.settle(limit, timeout)
	if err != nil {
		r.do((*agree.Node).Leave)
		if limit.Err() != nil && ctx.Err() == nil {
			err = errors.New("the survivors came to no agreement in time")
		}
		return nil, err
	}
	ranks, err := agree.Outcome(decided, s.Rank, s.Ranks, s.Gen)
	if err == nil {
		e.forgetLosses(ranks)
	}
	return ranks, err
}

// settle takes part until there is a decision.
func (a *agreement) settle(ctx context.Context, timeout time.Duration) ([]int, error) {
	a.do((*agree.Node).Join)
	enough := time.NewTimer(timeout)
	defer enough.Stop()
	try := time.NewTimer(ballotInterval)
	defer try.Stop()
	for {
		a.mu.Lock()
		decided, hopeless, here := a.node.Decided(), a.node.Hopeless(), a.node.Here()
		a.mu.Unlock()
		switch {
		case decided != nil:
			return decided, nil
		case hopeless:
			return nil, agree.TooFew(here, a.ranks, a.key.gen-a.e.cfg.Gen)
		}
		select {
		case <-a.changed:
		case <-enough.C:
			a.do((*agree.Node).Hurry)
		case <-try.C:
			a.do((*agree.Node).Tick)
			try.Reset(ballotInterval + rand.N(ballotInterval))
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.e.stop:
			return nil, errors.New("the engine is closed")
		}
	}
}

// forgetLosses forgets the failures that led to a new generation of some ranks: what is lost from now on is another matter.
func (e *Engine) forgetLosses(ranks []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.firstErr = nil
	if e.firstLost != nil && !slices.Contains(ranks, e.firstLost.peer.Rank) {
		e.firstLost = e.lostAmong(ranks)
	}
}
