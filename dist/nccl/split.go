package nccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// split is a communicator that is made from another one, by ncclCommSplit: the ranks know each other's addresses already.
// The goroutine of the other communicator calls it, before the operations that are issued later. It waits for the other ranks, so a
// group of the control engine has a Barrier for each split: it knows who has not come, or is lost.
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
func (b *endpoint) cut(s *split) {
	b.e.mu.Lock()
	err := b.arrive()
	b.e.mu.Unlock()
	if err == nil {
		err = b.e.lib.Err("ncclCommSplit", b.comm.Split(s.color, s.key, s.comm))
	}
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.cuts, b.slow = b.cuts[1:], false
	if err != nil {
		b.failSplit(err)
	}
	if err != nil && b.err != nil {
		err = b.err // the first cause: an abort may have ended the call
	}
	s.end(err)
	b.e.turn.Broadcast()
}

// arrive tells the other ranks that this one begins the next split.
func (b *endpoint) arrive() (err error) {
	if len(b.spec.Ranks) == 1 {
		return nil
	}
	if b.here == nil {
		s := b.spec
		s.ID, s.Parent, s.Name = backend.Hash64(b.spec.ID, 0x6e63636c2d637574), b.spec.ID, "splits of "+b.spec.Name
		if b.here, err = b.e.Control.Open(s); err != nil {
			return err
		}
	}
	b.arrived++
	return b.here.Issue(&backend.Op{Kind: backend.Barrier, Seq: b.arrived})
}

// checkCut fails the group when a rank is lost during a split, and when it takes longer than the group's timeout.
func (b *endpoint) checkCut() {
	if b.err != nil || len(b.cuts) == 0 || b.cuts[0].began.IsZero() {
		return
	}
	if b.here != nil {
		if _, err := b.here.Progress(); err != nil {
			b.failSplit(err)
		}
	}
	if b.err == nil && b.spec.Timeout > 0 && time.Since(b.cuts[0].began) >= b.spec.Timeout {
		b.failSplit(fmt.Errorf("ncclCommSplit: %w", backend.TimedOut(b.here, b.spec.Ranks, b.arrived, b.spec.Timeout)))
	}
}

// failSplit is fail because of a split.
func (b *endpoint) failSplit(err error) {
	if known := (*backend.Error)(nil); !errors.As(err, &known) {
		err = &backend.Error{Rank: b.spec.Ranks[b.spec.Rank], Group: b.spec.Name, Op: "split", Cause: err}
	}
	b.fail(err)
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
	why := b.err
	if why == nil {
		why = backend.ErrClosed
	}
	for _, s := range b.cuts {
		s.end(why)
	}
	b.cuts = nil
}

// giveBack ends the communicator of a split whose group is not opened.
func (s *split) giveBack() {
	if s == nil {
		return
	}
	e := s.parent.e
	e.wg.Go(func() {
		<-s.over
		_ = e.onThread(func() error {
			_ = s.comm.Abort(s.over) // nobody is there to hear of an error
			return nil
		})
	})
}
