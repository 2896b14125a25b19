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
// group of the control engine has a Barrier for each split: it knows who has not asked for the split, or is lost.
type split struct {
	parent     *endpoint
	color, key int
	seq        uint64 // of the Barrier
	comm       *nccl.Comm
	since      time.Time     // when it was asked for; when it began
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
	b.splits++
	s := &split{parent: b, color: color, key: key, seq: b.splits, comm: e.lib.NewComm(), since: time.Now(), over: make(chan struct{})}
	b.cuts = append(b.cuts, s)
	if color != nccl.NoColor {
		e.splits[child] = s
	}
	if err := b.arrive(s); err != nil {
		b.failSplit(err)
	}
	e.turn.Broadcast()
	e.look()
}

// arrive tells the other ranks that this one has asked for a split. The rank may say at once that it leaves the job: the Barrier
// is before that.
func (b *endpoint) arrive(s *split) (err error) {
	if len(b.spec.Ranks) == 1 {
		return nil
	}
	if b.here == nil {
		spec := b.spec
		spec.ID, spec.Parent, spec.Name = backend.Hash64(b.spec.ID, 0x6e63636c2d637574), b.spec.ID, "splits of "+b.spec.Name
		if b.here, err = b.e.Control.Open(spec); err != nil {
			return err
		}
	}
	return b.here.Issue(&backend.Op{Kind: backend.Barrier, Seq: s.seq})
}

// cut does a split. An abort of the communicator ends it.
func (b *endpoint) cut(s *split) {
	err := b.e.lib.Err("ncclCommSplit", b.comm.Split(s.color, s.key, s.comm))
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	if err != nil {
		b.failSplit(err)
		err = b.err // the first cause: an abort may have ended the call
	}
	s.end(err)
	b.cuts, b.slow = b.cuts[1:], false
	b.e.turn.Broadcast()
}

// checkCut fails the group when a rank is lost before a split, and when one takes longer than the group's timeout.
func (b *endpoint) checkCut() {
	if b.err != nil || len(b.cuts) == 0 {
		return
	}
	if b.here != nil {
		if _, err := b.here.Progress(); err != nil {
			b.failSplit(err)
			return
		}
	}
	if s := b.cuts[0]; b.spec.Timeout > 0 && time.Since(s.since) >= b.spec.Timeout {
		b.failSplit(fmt.Errorf("ncclCommSplit: %w", backend.TimedOut(b.here, b.spec.Ranks, s.seq, b.spec.Timeout)))
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

// leaveCuts ends the splits that a failed end will not do.
func (b *endpoint) leaveCuts() {
	for _, s := range b.cuts {
		s.end(b.err)
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
