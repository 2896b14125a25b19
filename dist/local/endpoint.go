package local

import (
	"context"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// endpoint is one rank's side of a group: a backend.Backend, and also the backend.Window that it works on.
type endpoint struct {
	engine   *Engine
	group    *group
	spec     backend.Spec
	hash     uint64
	me       *member
	direct   *algo.Direct
	counters backend.Counters
	quiet    bool // after the failure, no peer uses this rank's memory any more
	closed   bool

	stream Stream    // for operations on device memory; nil: there was none yet
	past   uint64    // with a stream: operations that the device has finished, too
	looked time.Time // when the device was asked
	busy   bool      // the device has not finished all that direct has done
}

// Caps returns what the engine can do.
func (b *endpoint) Caps() backend.Caps { return caps }

// Algorithms returns the names that Op.Algo may have. On devices, "direct" chooses between one-shot and two-shot by the size.
func (b *endpoint) Algorithms() []string {
	if b.engine.device != nil {
		return []string{"direct", algo.OneShot, algo.TwoShot}
	}
	return []string{"direct"}
}

// Choice returns the name of the algorithm that runs op.
func (b *endpoint) Choice(*backend.Op) string { return "direct" }

// checkAlgo returns an error if op names an algorithm that cannot do it.
func (b *endpoint) checkAlgo(op *backend.Op) error {
	if op.Kind != backend.AllReduce && (op.Algo == algo.OneShot || op.Algo == algo.TwoShot) {
		return backend.OpError(&b.spec, op, fmt.Errorf("algorithm %q cannot do %v, which has: direct", op.Algo, op.Kind))
	}
	return nil
}

// Counters returns the bytes that this rank has moved.
func (b *endpoint) Counters() *backend.Counters { return &b.counters }

// Issue posts op for the peers.
func (b *endpoint) Issue(op *backend.Op) error {
	if f := b.group.failed.Load(); f != nil {
		return b.failure(f)
	}
	done := b.direct.Done()
	if b.stream != nil {
		done = b.past
	}
	if last := b.me.posted.Load(); op.Seq != last+1 || op.Seq > done+backend.Depth {
		return fmt.Errorf("local: operation %d issued after %d, with %d done", op.Seq, last, done)
	}
	if err := b.checkAlgo(op); err != nil {
		return err
	}
	if err := b.prepare(op); err != nil {
		return err
	}
	b.direct.Post(op)
	return nil
}

// Progress moves a few blocks of the oldest operation.
func (b *endpoint) Progress() (uint64, error) {
	if f := b.group.failed.Load(); f != nil {
		return b.failed(f)
	}
	moved, err := b.direct.Step()
	if err == nil && !moved {
		err = b.deserted()
	}
	var over uint64
	if err == nil {
		over, err = b.over(false)
	}
	if err != nil {
		b.engine.hub.fail(b.group, err)
		return b.failed(b.group.failed.Load())
	}
	if moved {
		b.engine.bell.Ring() // there may be more work: the next Park must not sleep
	}
	return over, nil
}

// failed is Progress after a failure.
func (b *endpoint) failed(f *failure) (uint64, error) {
	err := b.failure(f)
	if b.stream != nil {
		return b.past, err
	}
	return b.direct.Done(), err
}

// deserted returns the failure of an operation that a peer will never issue, because it closed the group or left the job.
func (b *endpoint) deserted() error {
	if seq := b.direct.Done() + 1; b.me.posted.Load() >= seq {
		return b.Deserted(seq)
	}
	return nil
}

// Deserted returns the failure of operation seq if a peer will never issue it.
func (b *endpoint) Deserted(seq uint64) error {
	if b.group.closed.Load() == 0 && b.engine.hub.finished.Load() == 0 {
		return nil
	}
	for i, rank := range b.spec.Ranks {
		var why error
		if b.engine.hub.ranks[rank].finished.Load() {
			why = backend.ErrLeft
		} else if m := b.group.members[i].Load(); m != nil && m.closed.Load() {
			why = backend.ErrClosed
		}
		if why != nil && b.Posted(i) < seq { // read last: a rank posts before it leaves
			return b.peerError(rank, seq, why)
		}
	}
	return nil
}

// peerError returns the error of operation seq, which may not be issued yet.
func (b *endpoint) peerError(rank int, seq uint64, why error) error {
	e := &backend.Error{Rank: rank, Group: b.spec.Name, Seq: seq, Cause: why}
	if b.me.posted.Load() >= seq {
		e.Op = b.posting(seq).Op.Asked().String()
	}
	return e
}

// failure returns the group's first cause, when no peer uses this rank's memory any more. Operations that all ranks had finished before
// the failure stay successful.
func (b *endpoint) failure(f *failure) error {
	if !b.quiet {
		for last := ^uint64(0); last != b.direct.Done(); {
			last = b.direct.Done()
			_, _ = b.direct.Step() // it moves nothing any more; a mismatch would not be the first cause
		}
		b.quiesce()
		b.quiet = true
	}
	return f.err
}

// Park sleeps until something happens in any group of this rank.
func (b *endpoint) Park(ctx context.Context, _ uint64) error { return b.engine.Park(ctx) }

// Abort fails the group on all ranks.
func (b *endpoint) Abort(cause error) error {
	b.engine.hub.fail(b.group, cause)
	return nil
}

// Close leaves the group.
func (b *endpoint) Close() error {
	if !b.closed {
		b.closed = true
		b.me.closed.Store(true)
		b.group.closed.Add(1)
		b.ring()
		b.engine.hub.leave(b.group)
	}
	return b.engine.dropStreams(func(x *endpoint) bool { return x.unused() })
}

// Suspects returns the ranks that operation seq waits for.
func (b *endpoint) Suspects(seq uint64) (absent, stalled []int) { return b.direct.Suspects(seq) }

// HasPosted reports whether the peer of a point-to-point group has started its operation seq.
func (b *endpoint) HasPosted(seq uint64) bool { return b.Posted(1-b.spec.Rank) >= seq }

// Rank returns this rank's index in the group.
func (b *endpoint) Rank() int { return b.spec.Rank }

// Size returns the number of members.
func (b *endpoint) Size() int { return len(b.spec.Ranks) }

// Post publishes op. Every rank waits for the posts of all others, so the last one to post wakes them.
func (b *endpoint) Post(op *backend.Op) {
	b.posting(op.Seq).Fill(op, b.spec.Name, backend.Fingerprint(op, b.hash))
	b.me.posted.Store(op.Seq)
	if b.group.posts.last(op.Seq, b.Size()) {
		b.ring()
	}
}

func (b *endpoint) ring() {
	for i, bell := range b.group.bells {
		if i != b.spec.Rank {
			bell.Ring()
		}
	}
}

// Posted returns the number of the last operation that peer has posted.
func (b *endpoint) Posted(peer int) uint64 {
	if m := b.group.members[peer].Load(); m != nil {
		return m.posted.Load()
	}
	return 0
}

// Posting returns what peer posted as operation seq.
func (b *endpoint) Posting(peer int, seq uint64) *backend.Posting {
	return b.group.members[peer].Load().ring.At(seq)
}

// posting returns what this rank posted as operation seq.
func (b *endpoint) posting(seq uint64) *backend.Posting {
	return b.me.ring.At(seq)
}

// Finish publishes that this rank no longer uses any peer's memory for operation seq. It wakes the peers that may wait for this rank
// alone.
func (b *endpoint) Finish(seq uint64) {
	b.me.finished.Store(seq)
	p := b.posting(seq)
	switch p.Op.Kind {
	case backend.Barrier, backend.MonitoredBarrier:
		return
	case backend.AllReduce:
		if p.HasInput() {
			return
		}
	case backend.Reduce, backend.Gather: // peers wait only for the root
		if p.Op.Root == b.spec.Rank {
			b.ring()
		}
		return
	}
	if b.group.ends.last(seq, b.Size()) {
		b.ring()
	}
}

// Finished returns the number of the last operation that peer has finished.
func (b *endpoint) Finished(peer int) uint64 {
	if m := b.group.members[peer].Load(); m != nil {
		return m.finished.Load()
	}
	return 0
}

// Enter begins access to peers' memory, unless the group has failed.
func (b *endpoint) Enter() bool {
	b.me.busy.Lock()
	if b.Aborted() {
		b.me.busy.Unlock()
		return false
	}
	return true
}

// Leave ends the access.
func (b *endpoint) Leave() { b.me.busy.Unlock() }

// Aborted reports whether the group has failed.
func (b *endpoint) Aborted() bool { return b.group.failed.Load() != nil }

// Touch counts bytes that are read from or written to peer's memory.
func (b *endpoint) Touch(peer int, kind backend.Kind, bytes int) bool {
	if f := b.engine.hub.fault; f != nil && f(b.engine.rank, b.spec.Ranks[peer], bytes) {
		return false
	}
	b.counters.Wire[kind].Add(uint64(bytes))
	return true
}
