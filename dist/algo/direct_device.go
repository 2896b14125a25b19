package algo

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Stream is a queue of a rank's device, on which Direct does operations on the memory of devices. Streams of the ranks of a
// group wait for each other on the device, the host for none of them. One goroutine at a time calls them.
type Stream interface {
	// Issued notes what this rank's device has been given to compute by now: what operation seq reads or writes of this
	// rank's memory comes after it.
	Issued(seq uint64) error
	// Queue queues this rank's share of an operation.
	Queue(s *Share) error
	// Settle ends operation seq of this rank, behind the shares of peers.
	Settle(seq uint64, peers []Stream) error
}

// Streams is implemented by a Window whose ranks may have memory of devices.
type Streams interface {
	// Stream returns the stream of a peer that has posted an operation on device memory.
	Stream(peer int) Stream
}

// Share is what one rank does for an operation on the memory of devices: copies, or a reduction.
type Share struct {
	Op     *backend.Op
	After  []Stream // it waits for what was Issued there: the ranks whose memory it touches
	Copies []Copy
	// Count elements of Srcs[0], Srcs[1], … are combined in this order; the result goes to all of Dsts. An element of Srcs may
	// be the same element of Dsts. Factors are those of PreMulSum.
	Count   int
	Srcs    []tensor.Ptr
	Dsts    []tensor.Ptr
	Factors []float64
}

// Copy is bytes to copy from memory of another rank's device, or of the own one.
type Copy struct {
	From     Stream
	Dst, Src tensor.Ptr
	Bytes    int
}

// queue gives this rank's share of the operation to its stream. It reports false when the group has failed.
func (d *Direct) queue(op *backend.Op) (bool, error) {
	if !d.w.Enter() {
		return false, nil
	}
	defer d.w.Leave()
	me, s := d.spec.Rank, &d.share
	s.Op, s.After, s.Copies = op, s.After[:0], s.Copies[:0]
	s.Count, s.Srcs, s.Dsts, s.Factors = 0, s.Srcs[:0], s.Dsts[:0], s.Factors[:0]
	for i := range d.all {
		if i == me || op.Kind == backend.Barrier || touches(op, me, i) {
			s.After = append(s.After, d.streams.Stream(i))
		}
	}
	switch {
	case op.Kind.Reduces():
		d.shareReduction(op)
	case op.Kind != backend.Barrier:
		d.shareCopies(op)
	}
	if err := d.streams.Stream(me).Queue(s); err != nil {
		return false, backend.OpError(&d.spec, op, err)
	}
	return true, nil
}

func (d *Direct) shareCopies(op *backend.Op) {
	for i := range d.all {
		from := (d.spec.Rank + i) % len(d.all) // everyone starts with itself, as in copyBlock
		p, ok := d.pieceFrom(op, from)
		if !ok || p.bytes == 0 || from != d.spec.Rank && !d.w.Touch(from, op.Kind, p.bytes) {
			continue
		}
		d.copyFrom(from, unsafe.Add(op.Dst.Ptr, p.dst), unsafe.Add(d.all[from].Op.Src.Ptr, p.src), p.bytes)
	}
}

func (d *Direct) copyFrom(from int, dst, src tensor.Ptr, bytes int) {
	if dst != src {
		d.share.Copies = append(d.share.Copies, Copy{d.streams.Stream(from), dst, src, bytes})
	}
}

// shareReduction lets this rank combine its slice of all inputs. An all-reduce writes it to all outputs at once: that moves each
// byte once, and an element is read and written by one thread of one device alone, so that it may be in place.
func (d *Direct) shareReduction(op *backend.Op) {
	lo, hi, to := d.part(op)
	if lo == hi {
		return
	}
	me, s := d.spec.Rank, &d.share
	if len(d.all) == 1 && op.Red != backend.PreMulSum {
		d.copyFrom(me, unsafe.Add(op.Dst.Ptr, to), unsafe.Add(op.Src.Ptr, lo), hi-lo)
		return
	}
	s.Count = (hi - lo) / op.DType.Size()
	for i, p := range d.all {
		s.Srcs, s.Factors = append(s.Srcs, unsafe.Add(p.Op.Src.Ptr, lo)), append(s.Factors, p.Op.Factor)
		if op.Kind == backend.AllReduce {
			s.Dsts = append(s.Dsts, unsafe.Add(p.Op.Dst.Ptr, lo))
		}
		if i != me {
			d.w.Touch(i, op.Kind, hi-lo)
		}
		if i != me && op.Kind == backend.AllReduce { // what is written there
			d.w.Touch(i, op.Kind, hi-lo)
		}
	}
	if op.Kind != backend.AllReduce {
		s.Dsts = append(s.Dsts, unsafe.Add(op.Dst.Ptr, to))
	}
}

// settle ends an operation that every peer has queued its share of.
func (d *Direct) settle(op *backend.Op) error {
	d.awaited = d.awaited[:0]
	for i := range d.all {
		if d.awaits(op, i) {
			d.awaited = append(d.awaited, d.streams.Stream(i))
		}
	}
	if err := d.streams.Stream(d.spec.Rank).Settle(op.Seq, d.awaited); err != nil {
		return backend.OpError(&d.spec, op, err)
	}
	return nil
}
