package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// abortGrace is how long a peer may take to stop touching memory after an abort: it checks after each block. A peer that
// takes longer is stopped. The memory that it could still write to is then replaced.
const abortGrace = 100 * time.Millisecond

// End is one rank's end of a group: algo.Direct, and the window that it runs over. Post, Step and Close are for one
// goroutine at a time, Fail for any.
type End struct {
	h     *Host
	spec  backend.Spec
	key   key
	n     int
	me    int
	hash  uint64 // of the group's name
	lay   layout
	entry int // of the directory
	off   int // of the block in segment 0
	mine  *block

	views  []atomic.Pointer[block] // of the peers, once they have opened the group
	looked []atomic.Uint64         // changes of the directory when a peer was not found there, plus 1

	direct   *algo.Direct
	counters backend.Counters
	done     uint64
	own      [postings]backend.Posting
	remote   []peerPosting
	peerErr  error // what a peer did wrong

	staged     [postings]bool
	stagedLast uint64 // last operation that is staged
	drainedTo  uint64 // first operation that may have pieces in slots
	channels   []channelState

	failed atomic.Bool
	quiet  bool       // no peer touches this rank's memory any more
	mu     sync.Mutex // held while the blocks are looked at: they may be gone afterwards
	closed bool
}

// Counters returns the bytes that this rank has read from and written to the memory of peers.
func (e *End) Counters() *backend.Counters { return &e.counters }

// Rank returns this rank's index in the group.
func (e *End) Rank() int { return e.me }

// Size returns the number of members.
func (e *End) Size() int { return e.n }

func (e *End) peer(i int) *peer { return e.h.peers[e.spec.Ranks[i]] }

// view returns the block of a member; nil while it has not opened the group.
func (e *End) view(i int) *block {
	if b := e.views[i].Load(); b != nil {
		return b
	}
	b, err := e.peer(i).find(e, &e.looked[i])
	if err != nil {
		e.setPeerErr(err)
		return nil
	}
	if b == nil {
		return nil
	}
	e.views[i].Store(b)
	if b.aborted.Load() != 0 { // before it could tell us
		e.mine.aborted.Store(1)
	}
	return b
}

// Start hands op to the group: it is posted, and driven by Step.
func (e *End) Start(op *backend.Op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.direct.Post(op)
	}
}

// Post publishes op and puts its first pieces into slots.
func (e *End) Post(op *backend.Op) {
	i := op.Seq % postings
	p := &e.own[i]
	p.Fill(op, e.spec.Name, backend.Fingerprint(op, e.hash))
	if e.staged[i] = e.describe(op, p); e.staged[i] {
		if e.stagedLast < e.drainedTo { // nothing is under way: forget what lies between
			for c := range e.channels {
				f := &e.channels[c]
				f.putSeq, f.freeSeq, f.putOff, f.freeOff = op.Seq, op.Seq, 0, 0
			}
		}
		e.stagedLast = op.Seq
	}
	e.mine.posted.Store(op.Seq)
	e.pump()
	e.ringAll()
}

func (e *End) ringAll() {
	for i := range e.n {
		if i != e.me {
			e.peer(i).doorbell.ring()
		}
	}
}

// Step does a bounded amount of work and returns the number of the last operation that is done. After Fail it returns only
// when no peer touches this rank's memory any more.
func (e *End) Step() (done uint64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.done, nil
	}
	if e.failed.Load() {
		e.quiesce()
		return e.done, nil
	}
	if e.Aborted() { // by a peer: why, it says over the network. What it left undone is no mismatch
		return e.done, nil
	}
	moved := e.pump()
	stepped, err := e.direct.Step()
	e.complete()
	if moved || stepped {
		e.h.doorbell.ring() // there may be more to do: the next park must not sleep
	}
	if e.peerErr != nil { // what Step found may follow from it
		err = e.peerErr
	}
	return e.done, err
}

// complete notes operations that all ranks are done with, after collecting their last pieces.
func (e *End) complete() {
	if last := e.direct.Done(); e.done < last {
		e.collectAll(last)
		e.done = last
	}
}

// Fail ends the group on this rank, and keeps the others from touching its memory.
func (e *End) Fail() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.failed.Swap(true) {
		return
	}
	e.mine.aborted.Store(1)
	for i := range e.n {
		if b := e.views[i].Load(); b != nil && i != e.me {
			b.aborted.Store(1)
			e.peer(i).doorbell.ring()
		}
	}
	e.h.doorbell.forceRing()
}

// Failed reports whether Fail was called.
func (e *End) Failed() bool { return e.failed.Load() }

// quiesce waits until no peer touches this rank's memory. What all ranks had finished before stays a success.
func (e *End) quiesce() {
	if e.quiet {
		return
	}
	e.quiet = true
	for last := ^uint64(0); last != e.direct.Done(); {
		last = e.direct.Done()
		_, _ = e.direct.Step() // moves nothing any more; a mismatch is not the first cause
	}
	e.complete()
	deadline := time.Now().Add(abortGrace)
	for i := range e.n {
		if i == e.me {
			continue
		}
		b := e.view(i)
		if b == nil {
			continue // it will see our flag before it touches anything
		}
		b.aborted.Store(1)
		for b.busy.Load() != 0 {
			if time.Now().After(deadline) {
				e.isolateResults()
				return
			}
			runtime.Gosched()
		}
	}
}

// isolateResults takes the results of all operations in flight away from peers that may still write to them.
func (e *End) isolateResults() {
	for seq := e.done + 1; seq <= e.mine.posted.Load(); seq++ {
		op := &e.own[seq%postings].Op
		if off, ok := e.h.place(op.Dst); ok && op.Kind == backend.AllReduce && !e.staged[seq%postings] {
			if err := e.h.heap.isolate(off, op.Dst.Bytes); err != nil {
				e.setPeerErr(err)
			}
		}
	}
}

// Suspects returns the ranks that operation seq waits for.
func (e *End) Suspects(seq uint64) (absent, stalled []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil
	}
	return e.direct.Suspects(seq)
}

// Reached reports whether peer has started operation seq.
func (e *End) Reached(peer int, seq uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.closed && e.Posted(peer) >= seq
}

// Posted returns the number of the last operation that peer has posted.
func (e *End) Posted(peer int) uint64 {
	if b := e.view(peer); b != nil {
		return b.posted.Load()
	}
	return 0
}

// Posting returns what peer posted as operation seq.
func (e *End) Posting(peer int, seq uint64) *backend.Posting {
	if peer == e.me {
		return &e.own[seq%postings]
	}
	return &e.read(peer, seq).Posting
}

// Finish publishes that this rank touches no peer's memory for operation seq any more.
func (e *End) Finish(seq uint64) {
	e.takeAll()
	e.mine.finished.Store(seq)
	e.ringAll()
}

// Finished returns the number of the last operation that peer has finished.
func (e *End) Finished(peer int) uint64 {
	if b := e.view(peer); b != nil {
		return b.finished.Load()
	}
	return 0
}

// Enter begins touching peers' memory, unless the group has failed.
func (e *End) Enter() bool {
	e.mine.busy.Store(1)
	if e.Aborted() {
		e.mine.busy.Store(0)
		return false
	}
	return true
}

// Leave ends what Enter began.
func (e *End) Leave() { e.mine.busy.Store(0) }

// Aborted reports whether the group has failed, here or on a peer that said so.
func (e *End) Aborted() bool { return e.mine.aborted.Load() != 0 }

// Touch counts bytes that are read from or written to peer's memory.
func (e *End) Touch(peer int, kind backend.Kind, bytes int) bool {
	if f := e.h.fault; f != nil && f(e.h.rank, e.spec.Ranks[peer], bytes) {
		return false
	}
	e.counters.Wire[kind].Add(uint64(bytes))
	return true
}

// Close leaves the group. Peers may still be finishing their part.
func (e *End) Close() {
	e.mu.Lock()
	over := e.closed
	e.closed = true
	e.mu.Unlock()
	if !over {
		e.h.retire(e)
	}
}
