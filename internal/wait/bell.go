package wait

import (
	"context"
	"sync/atomic"
)

const (
	quiet  uint32 = iota // nothing happened since the last Park
	rung                 // something happened: the next Park returns at once
	parked               // a goroutine sleeps
)

// Bell wakes one sleeping goroutine. A Ring between two Parks is never lost: it ends the next Park at once. So the waiter looks for work,
// parks if there is none, and looks again after each Park. Only one goroutine may Park at a time; any number may Ring. The state has its
// own cache line, and a Ring of a bell that is rung already is one load.
type Bell struct {
	_     [64]byte
	state atomic.Uint32
	_     [60]byte
	wake  chan struct{}
	crowd *Crowd // may be nil
}

// NewBell returns a quiet bell.
func NewBell() *Bell { return &Bell{wake: make(chan struct{}, 1)} }

// Ring ends the current or the next Park.
func (b *Bell) Ring() {
	if b.state.Load() == rung {
		return
	}
	if b.state.Swap(rung) == parked {
		b.crowd.add(1)
		b.wake <- struct{}{}
	}
}

// Park sleeps until the bell has been rung since the last Park, or until ctx ends (it returns ctx.Err()).
func (b *Bell) Park(ctx context.Context) error {
	b.crowd.add(-1)
	if !b.state.CompareAndSwap(quiet, parked) {
		b.crowd.add(1)
		b.state.Store(quiet)
		return nil
	}
	select {
	case <-b.wake:
		b.state.Store(quiet)
		return nil
	case <-ctx.Done():
	}
	if b.state.CompareAndSwap(parked, quiet) {
		b.crowd.add(1)
	} else {
		<-b.wake // a Ring is in progress: take its token; the state stays rung
		b.state.Store(rung)
	}
	return ctx.Err()
}
