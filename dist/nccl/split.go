package nccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/nccl"
)

// split is a communicator that is made from another one, by ncclCommSplit: the ranks know each other's addresses already.
// The goroutine of the other communicator calls it, before the operations that are issued later.
type split struct {
	parent     *endpoint
	color, key int
	comm       *nccl.Comm
	began      time.Time     // zero: not yet
	over       chan struct{} // closed when it is done, or will not be
	err        error         // to be read then
}

// Split makes the communicator of a group from that of this one, if there is one: else the group's first operation on device
// memory will make it, by an id. Whether there is one is the same on all ranks.
func (b *endpoint) Split(child uint64, color, key int) {
	e := b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.state == none || b.err != nil || b.closed || !e.lib.HasSplit() {
		return
	}
	s := &split{parent: b, color: color, key: key, comm: e.lib.NewComm(), over: make(chan struct{})}
	b.cuts = append(b.cuts, s)
	if color != nccl.NoColor {
		e.splits[child] = s
	}
	e.turn.Broadcast()
}

// nextCut returns the split that is next, before any operation.
func (b *endpoint) nextCut() *split {
	if len(b.cuts) > 0 {
		return b.cuts[0]
	}
	return nil
}

// cut does a split. An abort of the communicator ends it.
func (b *endpoint) cut(s *split) error {
	err := b.e.lib.Err("ncclCommSplit", b.comm.Split(s.color, s.key, s.comm))
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.cuts, b.slow = b.cuts[1:], false
	s.end(err)
	b.e.turn.Broadcast()
	return err
}

// checkCut fails the group when a split takes longer than its timeout.
func (b *endpoint) checkCut() {
	if b.err != nil || b.spec.Timeout <= 0 || len(b.cuts) == 0 || b.cuts[0].began.IsZero() || time.Since(b.cuts[0].began) < b.spec.Timeout {
		return
	}
	b.failAt(b.issued+1, fmt.Errorf("ncclCommSplit: no progress within %v", b.spec.Timeout))
}

// end tells the group of the split.
func (s *split) end(err error) {
	if err != nil {
		s.err = fmt.Errorf("splitting the communicator of group %s: %w", s.parent.spec.Name, err)
	}
	close(s.over)
}

// leaveCuts ends the splits that will not be done.
func (b *endpoint) leaveCuts() {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	for _, s := range b.cuts {
		s.end(errors.New("the group is over"))
	}
	b.cuts = nil
}
