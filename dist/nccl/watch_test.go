package nccl

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
)

// The timeout is for one operation: each operation that has run restarts it, also in a group that is never idle.
func TestTimeoutIsOfOneOperation(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	b := &endpoint{spec: backend.Spec{Timeout: time.Minute}, issued: 2, since: long}
	b.slot(2).device = true // and it is not on the stream yet
	b.advance()
	assert.EqualValues(t, 1, b.ran)
	b.checkTime()
	assert.NoError(t, b.err)
}

// An operation behind a split holds up no other group when the split begins, which waits for other ranks.
func TestSplitHoldsUpNoOther(t *testing.T) {
	e := &Engine{stir: make(chan struct{}, 1)}
	e.turn = sync.NewCond(&e.mu)
	ready := func(ticket uint64) *endpoint {
		b := &endpoint{e: e, state: ready, issued: 1}
		s := b.slot(1)
		s.device, s.ticket = true, ticket
		e.ends = append(e.ends, b)
		return b
	}
	first, second := ready(1), ready(2)
	first.cuts = []*split{{parent: first}}
	waits, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		second.await(func() bool {
			s, _ := second.myTurn()
			if s == nil {
				close(waits)
			}
			return s != nil
		})
	}()
	<-waits
	e.mu.Lock() // it sleeps
	_, cut := first.myTurn()
	e.mu.Unlock()
	assert.NotNil(t, cut)
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("the second group waits for the split of the first")
	}
}
