package algo

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Direct runs the operations of one rank of a group over a Window, in order. Every rank posts where its buffers are. When all have
// posted, each rank moves its share and says when it has finished. So an operation needs two synchronizations; or one, if the input is at
// most backend.EagerBytes, because it is then posted with the operation.
//
// On device memory, an all-reduce of few bytes is such an operation, too (one-shot): each rank has copied its input, and reads all copies.
//
// Bytes, with S for the whole buffer, summed over n ranks: all-reduce 2S(n−1): rank r reduces slice r of all inputs, in rank order, and
// writes it to all (eager or one-shot: every rank reduces everything, S·n(n−1)). Broadcast, reduce, gather and scatter S(n−1). All-gather,
// reduce-scatter and all-to-all n(n−1) times the part of one rank. In all operations but all-reduce, the rank that wants data reads it.
type Direct struct {
	w      backend.Window
	far    backend.Remote // nil: this process can use peers' addresses
	spec   backend.Spec
	red    Reducer
	posted uint64
	done   uint64
	phase  phase
	peer   int // the next peer to check, in phases arrive and settle
	piece  int // the next piece to move, in phase move
	off    int // bytes of it that are done
	budget int // bytes that this Step may still read and write
	all    []*backend.Posting
	srcs   [][]byte

	streams Streams // nil: no rank has device memory
	share   Share
	awaited []Stream
}

type phase uint8

const (
	arrive phase = iota // waiting until all ranks have posted the operation
	move                // reading and writing memory
	settle              // waiting until no peer uses this rank's memory
)

// stepBytes is how much memory one Step reads and writes, rounded up to a block. It is about 20 µs of work.
const stepBytes = 512 << 10

// NewDirect returns a Direct for the group of s.
func NewDirect(s backend.Spec, w backend.Window) *Direct {
	n := len(s.Ranks)
	far, _ := w.(backend.Remote)
	streams, _ := w.(Streams)
	return &Direct{w: w, far: far, streams: streams, spec: s, all: make([]*backend.Posting, n), srcs: make([][]byte, n)}
}

// Post shows op to the peers.
func (d *Direct) Post(op *backend.Op) {
	d.posted = op.Seq
	d.w.Post(op)
}

// Done returns the number of the last operation that is over for this rank.
func (d *Direct) Done() uint64 { return d.done }

// Step does a bounded amount of work for the oldest operation that is not over. It reports whether anything changed.
func (d *Direct) Step() (bool, error) {
	if d.done == d.posted {
		return false, nil
	}
	moved := false
	if d.phase == arrive {
		ok, err := d.arrived()
		if err != nil || !ok {
			return false, err
		}
		d.begin()
		moved = true
	}
	if d.phase == move {
		all, some, err := d.doShare()
		if err != nil || !all {
			return moved || some, err
		}
		d.w.Finish(d.done + 1)
		d.phase, d.peer = settle, 0
		moved = true
	}
	if !d.settled() {
		return moved, nil
	}
	if op := d.op(); op.OnDevice() {
		if err := d.settle(op); err != nil {
			return moved, err
		}
	}
	d.done++
	d.phase, d.peer = arrive, 0
	return true, nil
}

// doShare does some of this rank's share, or queues all of it on its device.
func (d *Direct) doShare() (all, some bool, err error) {
	if op := d.op(); op.OnDevice() {
		all, err = d.queue(op)
	} else {
		all, some = d.move()
	}
	return all, some, err
}

// arrived reads the postings of the peers and compares them with this rank's.
func (d *Direct) arrived() (bool, error) {
	seq, me := d.done+1, d.spec.Rank
	mine := d.w.Posting(me, seq)
	for ; d.peer < len(d.all); d.peer++ {
		if d.peer == me {
			d.all[me] = mine
			continue
		}
		if d.w.Posted(d.peer) < seq {
			return false, nil
		}
		p := d.w.Posting(d.peer, seq)
		if err := d.compare(mine, p); err != nil {
			return false, err
		}
		d.all[d.peer] = p
	}
	return true, nil
}

func (d *Direct) compare(mine, theirs *backend.Posting) error {
	me, peer := d.spec.Rank, d.peer
	if mine.Print != theirs.Print {
		a, b := backend.DescOf(&mine.Op, mine.Group), backend.DescOf(&theirs.Op, theirs.Group)
		a.Choice, b.Choice = "direct", "direct"
		return backend.Disagreement(&a, &b, d.spec.Ranks[me], d.spec.Ranks[peer])
	}
	if mine.Op.Kind != backend.AllToAllV {
		return nil
	}
	from, to := d.spec.Ranks[peer], d.spec.Ranks[me]
	if s, w := theirs.Op.SrcCounts[me], mine.Op.DstCounts[peer]; s != w {
		return backend.RowsMismatch(&mine.Op, d.spec.Name, from, to, s, w, mine.Op.Row)
	}
	if s, w := mine.Op.SrcCounts[peer], theirs.Op.DstCounts[me]; s != w {
		return backend.RowsMismatch(&mine.Op, d.spec.Name, to, from, s, w, mine.Op.Row)
	}
	return nil
}

func (d *Direct) begin() {
	d.phase, d.piece, d.off = move, 0, 0
	op := d.op()
	if op.Kind.Reduces() && !op.OnDevice() {
		d.red.Begin(op, len(d.all))
		for i, p := range d.all {
			d.red.SetFactor(i, p.Op.Factor)
		}
	}
}

func (d *Direct) op() *backend.Op { return &d.all[d.spec.Rank].Op }

// settled reports whether every peer that uses this rank's memory has finished.
func (d *Direct) settled() bool {
	for ; d.peer < len(d.all); d.peer++ {
		if d.awaits(d.op(), d.peer) && d.w.Finished(d.peer) < d.done+1 {
			return false
		}
	}
	return true
}

// awaits reports whether op is over for this rank only after peer has finished it.
func (d *Direct) awaits(op *backend.Op, peer int) bool {
	me := d.spec.Rank
	if peer == me {
		return false
	}
	if d.w.Posting(me, op.Seq).HasInput() {
		return false
	}
	return touches(op, peer, me)
}

// touches reports whether rank who reads or writes memory of rank whose.
func touches(op *backend.Op, who, whose int) bool {
	switch op.Kind {
	case backend.Broadcast, backend.Scatter:
		return whose == op.Root
	case backend.Reduce, backend.Gather:
		return who == op.Root
	case backend.Barrier, backend.MonitoredBarrier:
		return false
	case backend.Send, backend.Recv: // from rank 0 to rank 1 of a group of two
		return who == 1
	}
	return true
}

// Suspects returns the ranks of the group that operation seq waits for: absent ones have not posted it, stalled ones have posted but not
// finished it.
func (d *Direct) Suspects(seq uint64) (absent, stalled []int) {
	for i := range d.all {
		switch {
		case i == d.spec.Rank || seq > d.posted:
		case d.w.Posted(i) < seq:
			absent = append(absent, i)
		case d.awaits(&d.w.Posting(d.spec.Rank, seq).Op, i) && d.w.Finished(i) < seq:
			stalled = append(stalled, i)
		}
	}
	return absent, stalled
}

func bytesAt(m backend.Mem, lo, hi int) []byte {
	if lo == hi {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(m.Ptr, lo)), hi-lo)
}

// input returns bytes lo to hi of rank's input, or only the first of them. It returns false if they are not there yet.
func (d *Direct) input(rank, lo, hi int) ([]byte, bool) {
	p := d.all[rank]
	if b, ok := p.Eager(); ok {
		return b[lo:hi], true
	}
	if d.far != nil && rank != d.spec.Rank {
		return d.far.Input(rank, lo, hi)
	}
	return bytesAt(p.Op.Src, lo, hi), true
}

// output returns bytes lo to hi of rank's result.
func (d *Direct) output(rank, lo, hi int) []byte {
	if d.far != nil && rank != d.spec.Rank {
		return d.far.Output(rank, lo, hi)
	}
	return bytesAt(d.all[rank].Op.Dst, lo, hi)
}
