package algo

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// OneShot and TwoShot are the two ways of Direct to do an all-reduce of device memory.
const (
	OneShot = "oneshot"
	TwoShot = "twoshot"
)

// Stream is a queue of a rank's device. On it, Direct does operations on device memory. Streams of the ranks of a group wait for each
// other on the device; the host does not wait. Only one goroutine at a time may call them.
type Stream interface {
	// Issued notes how far this rank's compute queue has been filled. Operation op uses this rank's memory after that. For a one-shot
	// all-reduce it first queues a copy of the input there, and sets op.Copied.
	Issued(op *backend.Op) error
	// Queue queues this rank's share of an operation.
	Queue(s *Share) error
	// Settle ends operation seq of this rank, after the shares of peers.
	Settle(seq uint64, peers []Stream) error
}

// Streams is implemented by a Window whose ranks may have device memory.
type Streams interface {
	// Stream returns the stream of a peer that has posted an operation on device memory.
	Stream(peer int) Stream
}

// Share is what one rank does for an operation on device memory: copies, or a reduction.
type Share struct {
	Op     *backend.Op
	After  []Stream // the streams of ranks whose memory it uses: it waits for Issued there
	Copies []Copy
	// Count elements of Srcs[0], Srcs[1], … are combined in this order. The result goes to all of Dsts. Srcs and Dsts may share elements,
	// at the same places. Factors are those of PreMulSum.
	Count   int
	Srcs    []tensor.Ptr
	Dsts    []tensor.Ptr
	Factors []float64
}

// Copy is a copy from the memory of another rank's device, or of this rank's own.
type Copy struct {
	From     Stream
	Dst, Src tensor.Ptr
	Bytes    int
}

// queue gives this rank's share of the operation to its stream. It returns false if the group has failed.
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
		from := (d.spec.Rank + i) % len(d.all) // each rank begins with itself, as in copyBlock
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

// shareReduction makes this rank combine its slice of all inputs. An all-reduce writes it to all outputs in the same kernel (two-shot), so
// each byte moves once. Each element is read and written by one thread of one device only, so it works in place. In a one-shot all-reduce
// the slice is everything, the inputs are copies, and the rank writes only its own output.
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
	twoShot := op.Kind == backend.AllReduce && op.Copied == nil
	for i, p := range d.all {
		src := p.Op.Src.Ptr
		if op.Copied != nil {
			src = p.Op.Copied
		}
		s.Srcs, s.Factors = append(s.Srcs, unsafe.Add(src, lo)), append(s.Factors, p.Op.Factor)
		if twoShot {
			s.Dsts = append(s.Dsts, unsafe.Add(p.Op.Dst.Ptr, lo))
		}
		if i != me {
			d.w.Touch(i, op.Kind, hi-lo)
		}
		if i != me && twoShot { // its output, which this rank writes
			d.w.Touch(i, op.Kind, hi-lo)
		}
	}
	if !twoShot {
		s.Dsts = append(s.Dsts, unsafe.Add(op.Dst.Ptr, to))
	}
}

// settle ends an operation when every peer has queued its share.
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
