package mpi

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Messages between two ranks (Send, Recv) have ends of their own, and no communicator of their own: to make one, both sides would have to
// come, and a Send may come long before its Recv. The sender tells the receiver of each: its fingerprint, its bytes, and the tag under
// which they come on the communicator of all ranks. A small one is in that message itself.

// parcel is a message that was announced.
type parcel struct {
	seq   uint64
	print uint64
	tag   int64
	small []byte
}

const (
	tagLimit = 1 << 15 // MPI guarantees tags up to 32767
	ackEvery = backend.Depth / 2
)

func (b *endpoint) peer() int { return b.spec.Ranks[1-b.spec.Rank] }

// doSend sends the first operation in flight. A sender is at most backend.Depth messages ahead of those of which it knows that
// they were received: with those in flight, it remembers all that the receiver may ask about.
func (b *endpoint) doSend(op *backend.Op) bool {
	e := b.e
	if b.request != nil {
		return b.isOver()
	}
	if op.Seq > b.acked+backend.Depth {
		return false
	}
	h := head{kind: msgSend, id: b.spec.ID, seq: op.Seq, print: b.op(op.Seq).Print, a: int64(op.Src.Bytes), b: -1}
	b.counters.Wire[op.Kind].Add(uint64(op.Src.Bytes))
	if op.Src.Bytes <= inline {
		e.post(b.peer(), h, unsafe.Slice((*byte)(op.Src.Ptr), op.Src.Bytes))
		return true
	}
	e.tags[b.peer()] = (e.tags[b.peer()] + 1) % tagLimit
	h.b = int64(e.tags[b.peer()])
	e.post(b.peer(), h, nil)
	b.request = &request{of: b, p2p: true}
	e.isend(b.request, e.data, b.peer(), int(h.b), op.Src.Ptr, op.Src.Bytes)
	return b.begun()
}

// doRecv receives the first operation in flight.
func (b *endpoint) doRecv(op *backend.Op) bool {
	if b.request != nil {
		return b.isOver() && b.received(op)
	}
	p := &b.parcels[op.Seq%history]
	switch {
	case p.seq != op.Seq:
		return false
	case p.print != b.op(op.Seq).Print:
		p.seq = 0 // once
		b.accuse(1-b.spec.Rank, op.Seq)
		return false
	case p.tag < 0:
		copy(unsafe.Slice((*byte)(op.Dst.Ptr), op.Dst.Bytes), p.small)
		return b.received(op)
	}
	b.request = &request{of: b, p2p: true, writes: true}
	b.e.irecv(b.request, b.e.data, b.peer(), int(p.tag), op.Dst.Ptr, op.Dst.Bytes)
	return b.begun() && b.received(op)
}

// received counts a message, and tells the sender now and then.
func (b *endpoint) received(op *backend.Op) bool {
	b.counters.Received.Add(uint64(op.Dst.Bytes))
	if op.Seq%ackEvery == 0 {
		b.e.post(b.peer(), head{kind: msgAck, id: b.spec.ID, seq: op.Seq}, nil)
	}
	return true
}

// receiveSend notes a message that was announced.
func (b *endpoint) receiveSend(m *message) {
	p := &b.parcels[m.seq%history]
	p.seq, p.print, p.tag = m.seq, m.print, m.b
	p.small = append(p.small[:0], m.text...)
	b.e.moves++
}

// HasPosted reports whether the peer has sent message seq.
func (b *endpoint) HasPosted(seq uint64) bool {
	b.e.lock()
	defer b.e.mu.Unlock()
	b.e.step(b)
	return b.parcels[seq%history].seq == seq
}
