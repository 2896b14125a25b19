package algo

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Linear runs operations in the simplest way: a rank that has data for another rank sends it there. It is the reference for faster
// algorithms. In the comments n is the number of ranks, S the bytes of the full buffer, and a step is one message that must arrive before
// the next can be sent.
//
// A Linear belongs to one lane of one rank; its methods block. All ranks must run the same operation: the transport compares
// fingerprints, and every rank hears from every other, directly or through rank 0, before a collective ends. So an operation about which
// ranks disagree succeeds on no rank.
type Linear struct {
	t       backend.Transport
	v       backend.Virtual // t, if it has no memory
	red     Reducer
	scratch [][]byte // a chunk for each peer, made when first needed
	srcs    [][]byte // this chunk's inputs in rank order, made when first needed
}

// NewLinear returns the linear algorithms over t.
func NewLinear(t backend.Transport) *Linear {
	l := &Linear{t: t}
	if v, ok := t.(backend.Virtual); ok {
		l.v, l.red.work = v, v.Work
	}
	return l
}

// Run does one operation. Its error is the transport's.
func (l *Linear) Run(op *backend.Op) error {
	src, dst := whole(op.Src), whole(op.Dst)
	part := op.Count * op.DType.Size()
	switch op.Kind {
	case backend.Broadcast, backend.Reduce, backend.Gather, backend.Scatter:
		// Ranks that disagree about the root might all succeed, or all wait. So they agree first.
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
		return l.t.Send(op.Peer, 0, src) // op.Tag is compared by the fingerprint
	case backend.Recv:
		return l.t.Recv(op.Peer, 0, dst)
	}
	return fmt.Errorf("algo: linear has no %v", op.Kind)
}

// inputs returns the place of a chunk of each rank.
func (l *Linear) inputs() [][]byte {
	if l.srcs == nil {
		l.srcs = make([][]byte, l.t.Size())
	}
	return l.srcs
}

// buffer returns scratch for a chunk from peer p.
func (l *Linear) buffer(p, n int) []byte {
	if l.v != nil {
		return l.v.Memory(n)
	}
	if l.scratch == nil {
		l.scratch = make([][]byte, l.t.Size())
	}
	if cap(l.scratch[p]) < n {
		l.scratch[p] = make([]byte, n)
	}
	return l.scratch[p][:n]
}
