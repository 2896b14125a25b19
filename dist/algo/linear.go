package algo

import (
	"fmt"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

// linearChunk is the largest message of a linear algorithm that reduces or forwards: memory stays bounded, and a chunk
// is reduced while the next ones arrive. It is a multiple of every element size.
const linearChunk = 256 << 10

// Linear runs operations in the simplest way: every rank that has something for another sends it there. It is the
// oracle for faster algorithms. In the comments n is the number of ranks, S the bytes of the full buffer, and a step is
// one message that must arrive before the next can be sent.
//
// A Linear belongs to one lane of one rank; its methods block. All ranks must run the same operation: the transport
// compares fingerprints, and every rank hears from every other, directly or through rank 0, before a collective ends. So
// no rank is content with an operation about which the others disagree.
type Linear struct {
	t       backend.Transport
	red     Reducer
	scratch [][]byte // a chunk per peer, made when first needed
	srcs    [][]byte // this chunk's inputs in rank order
}

// NewLinear returns the linear algorithms over t.
func NewLinear(t backend.Transport) *Linear {
	n := t.Size()
	return &Linear{t: t, scratch: make([][]byte, n), srcs: make([][]byte, n)}
}

// Run does one operation. Its error is the transport's.
func (l *Linear) Run(op *backend.Op) error {
	src, dst := whole(op.Src), whole(op.Dst)
	part := op.Count * op.DType.Size()
	switch op.Kind {
	case backend.Broadcast, backend.Reduce, backend.Gather, backend.Scatter:
		// Ranks that disagree about the root could all be content, or all wait. They agree first.
		if err := l.barrier(); err != nil {
			return err
		}
	}
	switch op.Kind {
	case backend.Broadcast:
		return l.broadcast(op.Root, dst, src)
	case backend.Reduce:
		return l.reduce(op, op.Root, dst, src)
	case backend.AllReduce:
		return l.allReduce(op, dst, src)
	case backend.ReduceScatter:
		return l.reduceScatter(op, dst, src, even(part), nil)
	case backend.ReduceScatterV:
		return l.reduceScatter(op, dst, src, rows(op.SrcCounts, op.DType.Size()), nil)
	case backend.Gather:
		return l.gather(op.Root, dst, src, part)
	case backend.Scatter:
		return l.scatter(op.Root, dst, src, part)
	case backend.AllGather:
		return l.allGather(dst, src, even(part))
	case backend.AllGatherV:
		return l.allGather(dst, src, rows(op.DstCounts, op.DType.Size()))
	case backend.AllToAll:
		return l.allToAll(dst, src, even(part), even(part))
	case backend.AllToAllV:
		size := op.DType.Size()
		return l.allToAllV(dst, src, rows(op.DstCounts, size), rows(op.SrcCounts, size))
	case backend.Barrier, backend.MonitoredBarrier:
		return l.barrier()
	case backend.Send:
		return l.t.Send(op.Peer, 0, src) // op.Tag is compared with the rest of the operation
	case backend.Recv:
		return l.t.Recv(op.Peer, 0, dst)
	}
	return fmt.Errorf("algo: linear has no %v", op.Kind)
}

// parts says where the part of each rank lies in a buffer: equal parts of size bytes, or counts[i] elements of size.
type parts struct {
	counts []int
	size   int
}

func even(size int) parts               { return parts{nil, size} }
func rows(counts []int, size int) parts { return parts{counts, size} }

// bytes returns the length of rank i's part.
func (p parts) bytes(i int) int {
	if p.counts == nil {
		return p.size
	}
	return p.counts[i] * p.size
}

// of returns rank i's part of b.
func (p parts) of(b []byte, i int) []byte {
	lo := i * p.size
	if p.counts != nil {
		lo = before(p.counts, i) * p.size
	}
	return b[lo : lo+p.bytes(i)]
}

func whole(m backend.Mem) []byte { return unsafe.Slice((*byte)(m.Ptr), m.Bytes) }

// copyPart copies unless both are the same memory.
func copyPart(dst, src []byte) {
	if len(src) > 0 && unsafe.SliceData(dst) != unsafe.SliceData(src) {
		copy(dst, src)
	}
}

// piece returns chunk k of b: empty behind its end.
func piece(b []byte, k int) []byte {
	lo := min(k*linearChunk, len(b))
	return b[lo:min(lo+linearChunk, len(b))]
}

// pieces is the number of chunks of n bytes: at least one, because an empty operation synchronizes too.
func pieces(n int) int { return max(1, (n+linearChunk-1)/linearChunk) }

// buffer returns scratch for a chunk from peer p.
func (l *Linear) buffer(p, n int) []byte {
	if cap(l.scratch[p]) < n {
		l.scratch[p] = make([]byte, n)
	}
	return l.scratch[p][:n]
}
