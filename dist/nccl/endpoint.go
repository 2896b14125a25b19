package nccl

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/tensor"
)

// history is how many operations an end remembers: peers may still compare them with theirs.
const history = 2 * backend.Depth

// endpoint is one rank's end of a group. Everything is guarded by Engine.mu, but what belongs to the goroutine that issues
// while it runs, and what calls without the lock use (see unlocked).
type endpoint struct {
	e      *Engine
	spec   backend.Spec
	ctl    backend.Backend
	slots  [history]slot
	issued uint64 // operations that were given
	queued uint64 // those up to here are on the stream, or not for it
	ran    uint64 // those up to here have run, or are not for the stream
	agreed uint64 // those up to here the control engine has done
	since  time.Time

	state  state
	call   time.Time // when the call began in which the operation queued+1 is; zero: in none
	slow   bool      // that call waits for other ranks
	boot   *bootstrap
	from   *split          // what makes the communicator; nil: an id
	cuts   []*split        // of this communicator, that are to be done
	here   backend.Backend // of the control engine: who has asked for the splits
	splits uint64          // that were asked for
	comm   *nccl.Comm

	users int           // goroutines that make calls without the lock, the one that issues among them; and 1 until the end is over
	idle  chan struct{} // closed when there are none

	// Of the goroutine that issues.
	stream *cuda.Stream
	flag   cuda.Ptr // four bytes for barriers
	op     nccl.RedOp
	custom bool // op is to be destroyed
	rows   peer.Rows

	err    error         // the first failure
	closed bool          // nobody issues any more
	left   bool          // the engine does not know the end any more: it is closed, and has nothing to split
	quiet  chan struct{} // closed when nothing of this rank runs on the stream any more
}

// state is that of an end's communicator.
type state uint8

const (
	none   state = iota // no operation on device memory yet
	asking              // for the id
	making
	ready
)

// slot is an operation.
type slot struct {
	op            backend.Op // a copy
	stands        backend.Op // what the control engine gets
	counts        []int64    // of an AllToAllV: what the others send here, behind what this rank sends
	device        bool
	ticket        uint64 // its place among all groups; 0: the compute stream is not marked yet
	passed        bool   // the device is past it
	before, after *cuda.Event
}

// over reports whether the end has failed or has left: nobody begins a call any more.
func (b *endpoint) over() bool { return b.err != nil || b.left }

func (b *endpoint) slot(seq uint64) *slot { return &b.slots[seq%history] }

// Caps says what the control engine can do: it gets what is in host memory.
func (b *endpoint) Caps() backend.Caps {
	c := b.ctl.Caps()
	c.Async = false
	return c
}

// TakesDevice reports whether NCCL does op on device memory. Where it does not, the control engine works on a copy.
func (b *endpoint) TakesDevice(op *backend.Op) bool {
	if !op.Kind.Reduces() || ranked(op) {
		return true
	}
	_, ok := reduction(op)
	return ok
}

// Algorithms returns the names that Op.Algo may have.
func (b *endpoint) Algorithms() []string { return []string{"nccl"} }

// Choice names what runs op.
func (b *endpoint) Choice(op *backend.Op) string {
	switch {
	case b.onDevice(op) && ranked(op):
		return backend.RankOrder
	case b.onDevice(op):
		return "nccl"
	}
	if x, ok := b.ctl.(backend.Algorithms); ok {
		return x.Choice(op)
	}
	return b.e.Control.Name()
}

// onDevice reports whether NCCL runs op. A barrier is for the device too once the group has used it: the same on all ranks.
func (b *endpoint) onDevice(op *backend.Op) bool {
	return op.Src.Device || op.Dst.Device || op.Kind == backend.Barrier && b.state != none
}

// Counters returns the bytes that the control engine has moved. Those of NCCL nobody can count.
func (b *endpoint) Counters() *backend.Counters { return b.ctl.Counters() }

// Issue tells the other ranks of op, and queues it on the device if it is for it.
func (b *endpoint) Issue(op *backend.Op) error {
	e := b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case b.err != nil:
		return b.err
	case b.closed:
		return backend.OpError(&b.spec, op, backend.ErrClosed)
	case op.Seq != b.issued+1:
		return fmt.Errorf("nccl: operation %d issued after %d", op.Seq, b.issued)
	}
	if b.ran == b.issued {
		b.since = time.Now()
	}
	s := b.slot(op.Seq)
	s.device, s.ticket, s.passed = b.onDevice(op), 0, false
	s.op.Keep(op)
	if !s.device {
		if s.stands = *op; s.stands.Algo == "nccl" {
			s.stands.Algo = ""
		}
		b.issued = op.Seq
		b.advance()
		return b.ctl.Issue(&s.stands)
	}
	if err := check(op); err != nil {
		return backend.OpError(&b.spec, op, err)
	}
	b.announce(s)
	if err := b.ctl.Issue(&s.stands); err != nil {
		return err
	}
	b.issued = op.Seq
	if b.state == none {
		b.start()
	}
	e.look()
	if err := b.unlocked(func() error { return b.markCompute(s) }); err != nil {
		b.failAt(op.Seq, err)
	}
	if b.closed {
		return backend.OpError(&b.spec, op, backend.ErrClosed)
	}
	if b.err != nil {
		return b.err
	}
	e.ticket++
	s.ticket = e.ticket
	e.turn.Broadcast()
	return nil
}

// announce makes what the control engine gets in place of an operation on the device.
func (b *endpoint) announce(s *slot) {
	op := &s.op
	s.stands = backend.Op{Kind: backend.Barrier, Seq: op.Seq, Of: op}
	switch op.Kind {
	case backend.Send, backend.Recv: // an empty message: the receiver sees that it is there
		s.stands.Kind, s.stands.Peer, s.stands.Tag, s.stands.DType = op.Kind, op.Peer, op.Tag, op.DType
	}
	if op.Kind != backend.AllToAllV {
		return
	}
	n := len(b.spec.Ranks) // each tells each how much it sends
	s.counts = slices.Grow(s.counts[:0], 2*n)[:2*n]
	for i, c := range op.SrcCounts {
		s.counts[i] = int64(c)
	}
	s.stands = backend.Op{Kind: backend.AllToAll, DType: tensor.Int64, Seq: op.Seq, Count: 1, Shape: op.Shape,
		Src: backend.Mem{Ptr: unsafe.Pointer(&s.counts[0]), Bytes: 8 * n}, Dst: backend.Mem{Ptr: unsafe.Pointer(&s.counts[n]), Bytes: 8 * n}}
}

// markCompute remembers what the compute stream has been given so far.
func (b *endpoint) markCompute(s *slot) (err error) {
	if s.before == nil {
		if s.before, err = b.e.Device.NewEvent(false); err != nil {
			return err
		}
	}
	if s.after == nil {
		if s.after, err = b.e.Device.NewEvent(false); err != nil {
			return err
		}
	}
	return s.before.Record(b.e.Compute)
}

// Progress makes a step and returns how many operations are done: by all ranks, and on the device.
func (b *endpoint) Progress() (uint64, error) {
	b.e.mu.Lock()
	b.step()
	done, err := min(b.ran, b.agreed), b.err
	if b.running() != nil {
		b.e.look()
	}
	b.e.mu.Unlock()
	if err != nil {
		b.awaitQuiet()
	}
	return done, err
}

// step drives the control engine, and counts what has run.
func (b *endpoint) step() {
	if b.left {
		return
	}
	done, err := b.ctl.Progress()
	for b.agreed < done && b.err == nil {
		b.agreed++
		b.compareRows(b.slot(b.agreed))
	}
	b.advance()
	if err != nil {
		b.fail(err)
	}
	b.fetchID()
}

// compareRows compares what the others send in an AllToAllV with what this rank expects.
func (b *endpoint) compareRows(s *slot) {
	if !s.device || s.op.Kind != backend.AllToAllV {
		return
	}
	n := len(b.spec.Ranks)
	for from, sent := range s.counts[n : 2*n] {
		if want := s.op.DstCounts[from]; int(sent) != want {
			b.fail(backend.RowsMismatch(&s.op, b.spec.Name, b.spec.Ranks[from], b.spec.Ranks[b.spec.Rank], int(sent), want, s.op.Row))
			return
		}
	}
}

// advance counts operations that have run.
func (b *endpoint) advance() {
	for b.ran < b.issued && b.err == nil {
		s := b.slot(b.ran + 1)
		if s.device && !s.passed {
			return
		}
		b.ran++
		b.queued = max(b.queued, b.ran)
		b.since = time.Now()
	}
}

// busy reports whether anything is in flight.
func (b *endpoint) busy() bool {
	return b.err == nil && (b.ran < b.issued || b.agreed < b.issued || len(b.cuts) > 0)
}

// Order makes the compute stream wait for operation seq. The host waits for barriers and for operations on its memory.
func (b *endpoint) Order(seq uint64) bool {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	s := b.slot(seq)
	if b.err != nil || b.closed || seq > b.queued || s.op.Seq != seq || !s.device || s.op.Kind == backend.Barrier {
		return false
	}
	return b.unlocked(func() error { return b.e.Compute.Wait(s.after) }) == nil
}

// Park sleeps until something happened in any group of this rank.
func (b *endpoint) Park(ctx context.Context, _ uint64) error { return b.e.Park(ctx) }

// Abort fails the group on all ranks.
func (b *endpoint) Abort(cause error) error {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.fail(cause)
	return nil
}

// Suspects returns the ranks that operation seq waits for.
func (b *endpoint) Suspects(seq uint64) (absent, stalled []int) {
	if x, ok := b.ctl.(backend.Suspecter); ok {
		return x.Suspects(seq)
	}
	return nil, nil
}

// Whereabouts says where operation seq is that makes no progress.
func (b *endpoint) Whereabouts(seq uint64) string {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	return b.whereabouts(seq)
}

// HasPosted reports whether the peer of a point-to-point group has started its operation seq.
func (b *endpoint) HasPosted(seq uint64) bool {
	x, ok := b.ctl.(backend.Peeker)
	return ok && x.HasPosted(seq)
}

// Deserted returns the failure of operation seq when a peer will never issue it.
func (b *endpoint) Deserted(seq uint64) error {
	if x, ok := b.ctl.(backend.Peeker); ok {
		return x.Deserted(seq)
	}
	return nil
}

// Close leaves the group. If its communicator is to be split, the end stays until that is done, as one that still hears of
// failures: the other ranks need this one for the split.
func (b *endpoint) Close() error {
	b.e.mu.Lock()
	left := b.close()
	b.e.mu.Unlock()
	if c, ok := b.ctl.(backend.Closer); ok && left {
		return c.Close()
	}
	return nil
}

// close ends the issue of operations. It reports whether it has also made the end leave.
func (b *endpoint) close() bool {
	b.closed = true
	return (b.err != nil || len(b.cuts) == 0) && b.leave()
}
