package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/wait"
)

// history is how many operations an end remembers: those in flight here or at a peer.
const history = 2 * backend.Depth

// answerTimeout is how long a rank that is not stopped takes to answer a question, on a busy machine.
const answerTimeout = 500 * time.Millisecond

// endpoint is one rank's end of a group: what groups and messages between two ranks have in common. e.mu guards everything.
type endpoint struct {
	e        *Engine
	spec     backend.Spec
	hash     uint64 // of the name
	counters backend.Counters
	ops      backend.History[backend.Issued]
	issued   uint64
	done     uint64
	running  bool // a goroutine runs an algorithm
	cond     sync.Cond
	err      *backend.Error
	stops    []*stop // by rank in the group; nil: goes on
	endSent  bool
	closed   bool

	asked   int64 // number of the last question
	answers map[int]uint64

	request *request // of the operation that is first

	// Collectives:
	tuner    *algo.Tuner
	arrivals [history]arrival
	agreed   uint64  // up to this one, all ranks have issued the same operations
	comm     uintptr // 0: not made yet
	asksComm bool    // an operation waits for it
	making   bool    // MPI is in the call that makes it
	ours     *algo.Messages

	// Send and Recv:
	parcels [history]parcel
	acked   uint64 // the receiver has received messages up to this one
}

// stop says after which operation a member issues nothing, and why.
type stop struct {
	last uint64
	why  error
}

func newEndpoint(e *Engine, s backend.Spec) *endpoint {
	s.Ranks = slices.Clone(s.Ranks)
	hosts := make([]string, len(s.Ranks))
	for i, r := range s.Ranks {
		hosts[i], _, _ = strings.Cut(e.processes[r], ",")
	}
	b := &endpoint{e: e, spec: s, hash: backend.HashString(s.Name), stops: make([]*stop, len(s.Ranks)), answers: map[int]uint64{},
		tuner: algo.NewTuner(algo.LayoutOf(hosts))}
	b.cond.L = locker{e}
	return b
}

// locker is the lock of the Cond: a goroutine that it wakes goes before those that only look (see Engine.lock).
type locker struct{ e *Engine }

func (l locker) Lock()   { l.e.lock() }
func (l locker) Unlock() { l.e.mu.Unlock() }

// index returns the number in the group of a rank of the job, or -1.
func (b *endpoint) index(rank int) int { return slices.Index(b.spec.Ranks, rank) }

func (b *endpoint) op(seq uint64) *backend.Issued { return b.ops.At(seq) }

// Counters returns the bytes that this rank gave to MPI for the group. How often MPI sends them is not known.
func (b *endpoint) Counters() *backend.Counters { return &b.counters }

// toAll sends a message to all other members.
func (b *endpoint) toAll(h head, text []byte) {
	for i, r := range b.spec.Ranks {
		if i != b.spec.Rank {
			b.e.post(r, h, text)
		}
	}
}

// remember takes an operation that is issued.
func (b *endpoint) remember(op *backend.Op) error {
	switch {
	case b.err != nil:
		return b.err
	case b.closed:
		return fmt.Errorf("mpi: group %s is closed", b.spec.Name)
	case op.Seq != b.issued+1:
		return fmt.Errorf("mpi: group %s: operation %d issued after %d", b.spec.Name, op.Seq, b.issued)
	case b.issued-b.done >= backend.Depth:
		return fmt.Errorf("mpi: group %s: more than %d operations in flight", b.spec.Name, backend.Depth)
	}
	b.issued = op.Seq
	b.op(op.Seq).Keep(op, b.hash)
	return nil
}

// Issue begins an operation.
func (b *endpoint) Issue(op *backend.Op) error {
	b.e.lock()
	defer b.e.mu.Unlock()
	if err := b.remember(op); err != nil {
		return err
	}
	if err := b.check(op); err != nil {
		b.failOp(op.Seq, err)
		return b.err
	}
	switch op.Kind {
	case backend.Send, backend.Recv:
		b.step()
	default:
		b.arrive(op)
	}
	return nil
}

// step does what can be done of the operations in flight.
func (b *endpoint) step() {
	for b.err == nil && b.issued > b.done && b.e.callable() && b.checkEnds() && b.do() {
		b.finish()
		b.e.moves++
	}
}

// do makes a step for the first operation in flight. It reports whether that is done.
func (b *endpoint) do() bool {
	seq := b.done + 1
	op := b.op(seq).Op
	switch {
	case op.Kind == backend.Send:
		return b.doSend(op)
	case op.Kind == backend.Recv:
		return b.doRecv(op)
	case b.agreed < seq, b.running:
		return false
	case b.request != nil:
		return b.isOver()
	case op.Kind == backend.Barrier, op.Kind == backend.MonitoredBarrier, op.Nothing():
		return true
	case b.comm == 0 && (len(b.spec.Ranks) > 1 || b.native(op)):
		b.wantComm()
		return false
	case b.native(op):
		b.begin(op)
		return b.begun()
	}
	b.running = true
	go b.runOurs(op)
	b.wake()
	return false
}

// begun reports whether MPI is done with b.request, which has begun.
func (b *endpoint) begun() bool {
	b.e.start(b.request)
	return b.isOver()
}

// isOver reports whether MPI is done with the request of the operation that is first, which was tested. If it failed, so does the group.
func (b *endpoint) isOver() bool {
	r := b.request
	if !r.over {
		return false
	}
	b.request = nil
	if r.err != nil {
		b.failOp(b.done+1, r.err)
	}
	return r.err == nil
}

// finish notes that the first operation in flight is done.
func (b *endpoint) finish() {
	b.done++
	b.op(b.done).Op = nil
	b.wake()
}

func (b *endpoint) wake() {
	b.cond.Broadcast()
	b.e.woken = b.e.woken || b.running
}

// Progress makes one step. An error shows when no goroutine uses a buffer of the group any more, and MPI writes into none. MPI may still
// read one that it sends.
func (b *endpoint) Progress() (uint64, error) {
	e := b.e
	if e.wanted.Load() > 0 { // a goroutine that has something to do comes first
		runtime.Gosched()
	}
	e.mu.Lock()
	e.step(b)
	done, err, woken, idle := b.done, b.err, e.woken, e.stepAt.Sub(e.movedAt) > soonest
	failed := err != nil && !b.running
	e.woken = false
	e.mu.Unlock()
	switch {
	case woken:
		runtime.Gosched()
	case idle:
		wait.Yield()
	}
	if failed {
		return done, err
	}
	return done, nil
}

// Park sleeps until operation seq is done, ctx ends, or the group has failed.
func (b *endpoint) Park(ctx context.Context, seq uint64) error {
	for {
		if done, err := b.Progress(); err != nil || done >= seq {
			return err
		}
		if err := b.e.Park(ctx); err != nil {
			return err
		}
	}
}

// Abort fails the group on all ranks, and waits until the operation that runs here has let go of its buffers.
func (b *endpoint) Abort(cause error) error {
	if cause == nil {
		cause = errors.New("aborted")
	}
	b.e.lock()
	defer b.e.mu.Unlock()
	b.fail(cause, true)
	for b.running {
		b.cond.Wait()
	}
	return nil
}

// fail ends the group with its first error, and the groups that were made from it. tell: the other members hear it from this rank.
func (b *endpoint) fail(cause error, tell bool) {
	if b.err != nil || b.closed {
		return
	}
	if up := b.e.open[b.spec.Parent]; up != nil && up.err != nil && b.spec.Parent != 0 {
		cause, tell = up.err, false // its failure is on the way to this group
	}
	if !errors.As(cause, &b.err) {
		b.err = &backend.Error{Rank: b.e.rank, Host: b.e.processes[b.e.rank], Group: b.spec.Name, Seq: b.done, Cause: cause}
	}
	if tell {
		b.tellAbort(b.err)
	}
	if b.e.failed == nil {
		b.e.failed = b.err
	}
	b.e.release(b)
	if b.e.frozen == nil && !b.e.letGo(b) {
		b.e.freeze(b.err)
	}
	b.wake()
	for _, c := range slices.Clone(b.e.ends) {
		if c.spec.Parent == b.spec.ID && c != b {
			c.fail(b.err, false)
		}
	}
}

// failOp fails the group because of operation seq.
func (b *endpoint) failOp(seq uint64, cause error) {
	err := backend.OpError(&b.spec, &b.op(seq).Copy, cause)
	err.Host = b.e.processes[err.Rank]
	b.fail(err, true)
}

// noteStop notes that a rank of the job issues nothing after an operation.
func (b *endpoint) noteStop(rank int, last uint64, why error) {
	i := b.index(rank)
	switch {
	case i < 0 || i == b.spec.Rank:
		return
	case b.stops[i] == nil:
		b.stops[i] = &stop{last, why}
	case why == backend.ErrLeft:
		b.stops[i].why = why
	}
	b.e.moves++
	b.checkEnds()
}

// checkEnds fails the group if a member will never issue the operation that is next here.
func (b *endpoint) checkEnds() bool {
	if b.err == nil && b.issued > b.done {
		if err := b.Deserted(b.done + 1); err != nil {
			b.fail(err, true)
		}
	}
	return b.err == nil
}

// Deserted returns the failure of operation seq if a member will never issue it.
func (b *endpoint) Deserted(seq uint64) error {
	for i, x := range b.stops {
		if x != nil && x.last < seq {
			e := &backend.Error{Rank: b.spec.Ranks[i], Host: b.e.processes[b.spec.Ranks[i]], Group: b.spec.Name, Seq: seq, Cause: x.why}
			if e.Op = "recv"; seq <= b.issued {
				e.Op = b.op(seq).Copy.Asked().String()
			}
			return e
		}
	}
	return nil
}

// sendEnd tells the members once that this rank issues nothing more.
func (b *endpoint) sendEnd(left int64) {
	if !b.endSent && b.err == nil {
		b.endSent = true
		b.toAll(head{kind: msgEnd, id: b.spec.ID, seq: b.issued, a: left}, nil)
	}
}

// Close frees what the end has. Peers may still finish their part.
func (b *endpoint) Close() error {
	e := b.e
	e.lock()
	defer e.mu.Unlock()
	if b.closed {
		return nil
	}
	b.sendEnd(0)
	b.closed = true
	var err error
	if b.comm != 0 && b.err == nil && e.callable() {
		err = e.lib.Do("MPI_Comm_free", uintptr(unsafe.Pointer(&b.comm)))
	}
	b.cond.Broadcast()
	open := 0
	for i, x := range b.stops {
		if x == nil && i != b.spec.Rank {
			open++
		}
	}
	e.forget(b, open)
	return err
}

// Suspects asks all members how far they are. Absent ranks have not issued operation seq; stalled ones do not answer, or are those that
// it waits for.
func (b *endpoint) Suspects(seq uint64) (absent, stalled []int) {
	e := b.e
	e.lock()
	defer e.mu.Unlock()
	b.asked++
	clear(b.answers)
	b.toAll(head{kind: msgQuery, id: b.spec.ID, a: b.asked}, nil)
	e.until(answerTimeout, func() bool { return len(b.answers) == len(b.spec.Ranks)-1 })
	monitored := b.op(seq).Copy.Kind == backend.MonitoredBarrier && b.spec.Rank == 0
	for i := range b.spec.Ranks {
		last, ok := b.answers[i]
		if x := b.stops[i]; x != nil {
			last, ok = x.last, true
		}
		switch {
		case i == b.spec.Rank:
		case ok && last < seq, !ok && monitored:
			absent = append(absent, i)
		case !ok:
			stalled = append(stalled, i)
		}
	}
	if len(absent)+len(stalled) == 0 && b.done < seq {
		stalled = b.unheard(seq)
	}
	return absent, stalled
}

// Whereabouts says in which call of MPI an operation is.
func (b *endpoint) Whereabouts(seq uint64) string {
	b.e.lock()
	defer b.e.mu.Unlock()
	switch {
	case b.e.away != "":
		return "in " + b.e.away
	case b.request != nil:
		return "in " + b.request.call
	case !b.running:
		return "it has moved no data yet"
	}
	return "in algorithm " + b.Choice(&b.op(seq).Copy)
}

// Caps says that everything works: by MPI, or by our algorithms over its messages.
func (b *endpoint) Caps() backend.Caps {
	return backend.Caps{Kinds: backend.AllKinds &^ (1 << backend.Batch), Reds: backend.AllReds, DTypes: backend.AllDTypes, RecvAny: true}
}
