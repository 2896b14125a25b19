package algo

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// pull is memory to move: `bytes` bytes from offset src of rank from's input to offset dst of this rank's output.
type pull struct{ from, src, dst, bytes int }

// outcome is the result of work on a block.
type outcome uint8

const (
	stepped outcome = iota // there may be more
	blocked                // the input is not there yet
	none                   // no block was left
)

// move does about stepBytes of this rank's share. It reports whether all of it is done, and whether any of it was done. After an abort it
// ends early; then the group's failure ends the operation.
func (d *Direct) move() (all, some bool) {
	op := d.op()
	if op.Kind == backend.Barrier || op.Kind == backend.MonitoredBarrier || op.Kind == backend.Send {
		return true, true
	}
	if !d.w.Enter() {
		return false, true
	}
	defer d.w.Leave()
	for d.budget = stepBytes; d.budget > 0; some = true {
		if d.w.Aborted() {
			return false, true
		}
		var o outcome
		if op.Kind.Reduces() {
			o = d.reduceBlock(op)
		} else {
			o = d.copyBlock(op)
		}
		switch o {
		case none:
			return true, true
		case blocked:
			return false, some
		}
	}
	return false, true
}

// A piece of at least streamFrom bytes does not stay in the cache. It is copied in blocks so large that Go's memmove writes past the
// cache (non-temporal stores). This makes copies 1.3 to 1.5 times as fast; a block takes about 100 µs.
const (
	streamFrom  = 4 << 20
	streamBytes = 1 << 20
)

// copyBlock moves the next block of the current piece.
func (d *Direct) copyBlock(op *backend.Op) outcome {
	n, me := len(d.all), d.spec.Rank
	for d.piece < n {
		from := (me + d.piece) % n // each rank begins with itself, so that no two ranks read from the same one
		p, ok := d.pieceFrom(op, from)
		if !ok || d.off >= p.bytes {
			d.piece, d.off = d.piece+1, 0
			continue
		}
		block, move := BlockBytes, kernel.Move
		if p.bytes >= streamFrom {
			block, move = streamBytes, func(dst, src []byte) { copy(dst, src) }
		}
		hi := min(d.off+block, p.bytes)
		src, ok := d.input(from, p.src+d.off, p.src+hi)
		if !ok {
			return blocked
		}
		hi = d.off + len(src)
		dst := bytesAt(op.Dst, p.dst+d.off, p.dst+hi)
		d.off = hi
		if unsafe.SliceData(src) == unsafe.SliceData(dst) {
			d.off = p.bytes // in place
			continue
		}
		if from == me || d.w.Touch(from, op.Kind, len(src)) {
			move(dst, src)
		}
		d.budget -= 2 * len(src)
		return stepped
	}
	return none
}

// pieceFrom returns what this rank reads from rank `from`, and whether there is anything.
func (d *Direct) pieceFrom(op *backend.Op, from int) (pull, bool) {
	me, size := d.spec.Rank, op.DType.Size()
	c := op.Count * size
	switch op.Kind {
	case backend.Broadcast:
		return pull{from, 0, 0, c}, from == op.Root
	case backend.Gather:
		return pull{from, 0, from * c, c}, me == op.Root
	case backend.AllGather:
		return pull{from, 0, from * c, c}, true
	case backend.Scatter:
		return pull{from, me * c, 0, c}, from == op.Root
	case backend.AllToAll:
		return pull{from, me * c, from * c, c}, true
	case backend.AllGatherV:
		return pull{from, 0, before(op.DstCounts, from) * size, op.DstCounts[from] * size}, true
	case backend.AllToAllV:
		src := before(d.all[from].Op.SrcCounts, me)
		return pull{from, src * size, before(op.DstCounts, from) * size, op.DstCounts[from] * size}, true
	case backend.Recv:
		return pull{from, 0, 0, c}, from != me
	}
	return pull{}, false
}

func before(counts []int, i int) int {
	n := 0
	for _, c := range counts[:i] {
		n += c
	}
	return n
}

// reduceBlock reduces the next block of this rank's share of the inputs.
func (d *Direct) reduceBlock(op *backend.Op) outcome {
	lo, hi, to := d.part(op)
	if d.off >= hi-lo {
		return none
	}
	lo += d.off
	hi = min(lo+BlockBytes, hi)
	me := d.spec.Rank
	for i := range d.all {
		src, ok := d.input(i, lo, hi)
		if !ok {
			return blocked
		}
		d.srcs[i] = src
	}
	for i := range d.all {
		if i != me && !d.w.Touch(i, op.Kind, hi-lo) {
			d.srcs[i] = zeros[:hi-lo]
		}
	}
	if _, eager := d.all[me].Eager(); op.Kind != backend.AllReduce || eager {
		d.red.Reduce(bytesAt(op.Dst, to+d.off, to+d.off+hi-lo), d.srcs)
	} else {
		d.reduceAndPush(lo, hi)
	}
	d.off += hi - lo
	d.budget -= 2 * len(d.all) * (hi - lo)
	return stepped
}

// twiceUpTo is the size of buffers up to which both results are stored in one pass. When memory bandwidth is the limit, four streams at a
// time are slower (0.8 to 1 times the speed, from 16 MiB on) than a block in the first-level cache that is copied later.
const twiceUpTo = 8 << 20

// reduceAndPush reduces bytes lo to hi into the first two outputs, and copies them from there to the others. In place, an output is also
// an input with the same bytes. All inputs have been read before the output is written.
func (d *Direct) reduceAndPush(lo, hi int) {
	var first, second []byte
	for i := range d.all {
		if i != d.spec.Rank && !d.w.Touch(i, backend.AllReduce, hi-lo) {
			continue
		}
		switch dst := d.output(i, lo, hi); {
		case dst == nil: // the group has failed
		case first == nil:
			first = dst
		case second == nil:
			second = dst
			if d.op().Src.Bytes <= twiceUpTo {
				d.red.ReduceTwice(first, second, d.srcs)
			} else {
				d.red.Reduce(first, d.srcs)
				copy(second, first)
			}
		default:
			copy(dst, first)
		}
	}
	if second == nil {
		d.red.Reduce(first, d.srcs)
	}
}

var zeros [BlockBytes]byte

// part returns the bytes of the inputs that this rank reduces, and their place in its output (for all-reduce the same place).
func (d *Direct) part(op *backend.Op) (lo, hi, to int) {
	n, me, size := len(d.all), d.spec.Rank, op.DType.Size()
	c := op.Count * size
	switch op.Kind {
	case backend.AllReduce:
		if d.all[me].HasInput() {
			return 0, c, 0
		}
		lo, hi = Slice(op.Count, n, me)
		return lo * size, hi * size, lo * size
	case backend.Reduce:
		if me != op.Root {
			return 0, 0, 0
		}
		return 0, c, 0
	case backend.ReduceScatterV:
		lo = before(op.SrcCounts, me) * size
		return lo, lo + op.SrcCounts[me]*size, 0
	}
	return me * c, (me + 1) * c, 0
}

// Slice returns the elements of a buffer of count elements that rank r of n reduces. Slices are equal parts, cut at multiples of 64
// elements, so that two ranks never write to one cache line.
func Slice(count, n, r int) (lo, hi int) {
	c := ((count+n-1)/n + 63) &^ 63
	return min(r*c, count), min((r+1)*c, count)
}
