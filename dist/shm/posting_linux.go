package shm

import (
	"math"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// peerPosting is what a peer has posted, checked and copied: what it writes there afterwards changes nothing.
type peerPosting struct {
	backend.Posting
	seq      uint64
	staged   bool
	src, dst ref
	counts   []int      // behind Op.SrcCounts and Op.DstCounts
	off, n   int        // what this rank reads of the input
	all      bool       // so do the others
	of       backend.Op // behind Op.Of
	taken    [2]uint64  // pieces of earlier operations, of this rank's own channel and of the common one
}

// stream returns what reader reads of owner's input (and, in an all-reduce, writes of owner's result), and whether all
// ranks read the same.
func stream(op *backend.Op, n, owner, reader int) (off, length int, all bool) {
	size := op.DType.Size()
	c := op.Count * size
	switch op.Kind {
	case backend.AllReduce:
		lo, hi := algo.Slice(op.Count, n, reader)
		return lo * size, (hi - lo) * size, false
	case backend.Reduce, backend.Gather:
		if reader == op.Root {
			return 0, c, false
		}
	case backend.Broadcast:
		if owner == op.Root {
			return 0, c, true
		}
	case backend.Scatter:
		if owner == op.Root {
			return reader * c, c, false
		}
	case backend.AllGather: // not for all: readers come in different orders, and would wait for each other in a circle
		return 0, c, false
	case backend.AllGatherV:
		return 0, op.DstCounts[owner] * size, false
	case backend.ReduceScatter, backend.AllToAll:
		return reader * c, c, false
	case backend.ReduceScatterV, backend.AllToAllV:
		for _, k := range op.SrcCounts[:reader] {
			off += k
		}
		return off * size, op.SrcCounts[reader] * size, false
	case backend.Send:
		return 0, c, false
	}
	return 0, 0, false
}

// describe writes this rank's operation for the peers. It reports whether the input is to be staged.
func (e *End) describe(op *backend.Op, p *backend.Posting) bool {
	d := e.mine.desc(op.Seq)
	d.seq, d.print, d.flags = op.Seq, p.Print, 0
	d.src, d.dst = ref{n: uint64(op.Src.Bytes)}, ref{n: uint64(op.Dst.Bytes)}
	if op.Of != nil {
		op, d.flags = op.Of, standsForBarrier
	}
	d.kind, d.red, d.dtype = uint8(op.Kind), uint8(op.Red), uint8(op.DType)
	d.count, d.root, d.peer, d.tag = int64(op.Count), int64(op.Root), int64(op.Peer), int64(op.Tag)
	d.row, d.factor, d.agreed = int64(op.Row), op.Factor, op.Agreed
	d.algoLen = uint8(copy(d.algo[:], op.Algo))
	d.ndim = 0
	for i, n := range op.Shape.Dims[:min(len(op.Shape.Dims), len(d.dims))] {
		d.dims[i], d.ndim = int64(n), uint8(i+1)
	}
	d.srcs, d.dsts = uint16(len(op.SrcCounts)), uint16(len(op.DstCounts))
	counts := e.mine.counts(d)
	for i, n := range op.SrcCounts {
		counts[i] = int64(n)
	}
	for i, n := range op.DstCounts {
		counts[len(op.SrcCounts)+i] = int64(n)
	}
	small, eager := p.Eager()
	copy(d.small[:], small)
	if eager {
		return false
	}
	s, ok := e.h.place(op.Src)
	t, back := e.h.place(op.Dst)
	d.src.off, d.dst.off = uint64(s), uint64(t)
	if !ok || op.Kind == backend.AllReduce && !back {
		d.flags |= staged
		return true
	}
	return false
}

// read copies what peer posted as operation seq. What it returns after an error (see End.peerErr) is of no use but harmless.
func (e *End) read(peer int, seq uint64) *peerPosting {
	p := &e.remote[peer]
	if p.seq == seq {
		return p
	}
	b := e.view(peer)
	d, mine := b.desc(seq), &e.own[seq%postings]
	p.seq, p.staged, p.src, p.dst = seq, d.flags&staged != 0, d.src, d.dst
	kind, red, dtype, ndim, algoLen := backend.Kind(d.kind), backend.Red(d.red), tensor.DType(d.dtype), d.ndim, d.algoLen
	srcs, dsts, print, size := int(d.srcs), int(d.dsts), d.print, uint64(len(e.peer(peer).heap.b))
	written := kind == backend.AllReduce || mine.Op.Kind == backend.AllReduce && print == mine.Print
	fits := func(r ref, reached bool) bool {
		most := uint64(math.MaxInt) // nobody reaches it in the heap: it may be ordinary memory, larger than the heap
		if reached && !p.staged {
			most = size
		}
		return r.n <= most && r.off <= most-r.n
	}
	switch {
	case d.seq != seq, kind >= backend.NumKinds, red >= backend.NumReds, dtype >= tensor.NumDTypes, ndim > tensor.MaxNDim,
		int(algoLen) > len(d.algo), srcs != 0 && srcs != e.n, dsts != 0 && dsts != e.n,
		print == mine.Print && kind != mine.Op.Asked() && (kind == backend.AllGatherV || kind == backend.ReduceScatterV): // without counts
		e.setPeerErr(e.peer(peer).ctl.errorf("operation %d of group %s is garbled", seq, e.spec.Name))
		p.Posting = *mine
		return p
	case !fits(p.src, true) || !fits(p.dst, written):
		e.setPeerErr(e.peer(peer).heap.errorf("operation %d of group %s refers to %d bytes at %#x and %d at %#x, it has %#x", seq, e.spec.Name,
			p.src.n, p.src.off, p.dst.n, p.dst.off, size))
		p.Posting = *mine
		return p
	}
	op := backend.Op{Kind: kind, Red: red, DType: dtype, Seq: seq, Count: int(d.count), Root: int(d.root), Peer: int(d.peer),
		Tag: int(d.tag), Factor: d.factor, Row: int(d.row), Src: backend.Mem{Ptr: unsafe.Pointer(&d.small), Bytes: int(p.src.n)},
		Dst: backend.Mem{Bytes: int(p.dst.n)}}
	if print != mine.Print || kind == backend.AllToAllV {
		e.readDetails(peer, p, b, d, &op, srcs, dsts)
	} else {
		op.SrcCounts, op.DstCounts = mine.Op.SrcCounts, mine.Op.DstCounts // agreed on
	}
	if d.flags&standsForBarrier != 0 {
		p.of = op
		op = backend.Op{Kind: backend.Barrier, Seq: seq, Src: op.Src, Dst: op.Dst, Of: &p.of}
		if kind == backend.Send || kind == backend.Recv {
			op.Kind, op.Peer, op.Tag, op.DType = kind, p.of.Peer, p.of.Tag, dtype
		}
	}
	p.Fill(&op, e.spec.Name, print)
	p.Op.Src.Ptr = nil
	if print != mine.Print {
		p.Group = b.groupName()
		return p
	}
	p.off, p.n, p.all = stream(&p.Op, e.n, peer, e.me)
	return p
}

// readDetails fills in what is only needed when ranks disagree, or in an AllToAllV.
func (e *End) readDetails(peer int, p *peerPosting, b *block, d *desc, op *backend.Op, srcs, dsts int) {
	p.counts = p.counts[:0]
	for _, n := range b.counts(d)[:srcs+dsts] {
		p.counts = append(p.counts, int(max(n, 0)))
	}
	op.SrcCounts, op.DstCounts = p.counts[:srcs:srcs], p.counts[srcs:]
	if op.Kind == backend.AllToAllV && (srcs != e.n || dsts != e.n) {
		e.setPeerErr(e.peer(peer).ctl.errorf("operation %d of group %s has no counts", op.Seq, e.spec.Name))
		op.SrcCounts, op.DstCounts = make([]int, e.n), make([]int, e.n)
	}
	op.Algo = string(d.algo[:min(int(d.algoLen), len(d.algo))])
	op.Shape.DType, op.Agreed = op.DType, d.agreed
	for _, n := range d.dims[:min(int(d.ndim), len(d.dims))] {
		op.Shape.Dims = append(op.Shape.Dims, int(n))
	}
}

func (b *block) groupName() string {
	name, _, _ := strings.Cut(string(b.name[:]), "\x00")
	return name
}

// setPeerErr notes the first thing that a peer did wrong: the next Step returns it.
func (e *End) setPeerErr(err error) {
	if e.peerErr == nil {
		e.peerErr = err
	}
}
