package nccl

import (
	"math"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// With RINGO_BITS=rank, reductions have the bits of ranks in host memory. NCCL only moves data: each rank gets its part of the elements
// from all ranks, a kernel of our own combines them in rank order, and the results go to their places. Summed over n ranks, these are
// 2S(n-1) bytes for an all-reduce of S, as with a ring.

// ranked reports whether op is such a reduction.
func ranked(op *backend.Op) bool { return op.Kind.Reduces() && op.Algo == backend.RankOrder }

// alignment is the alignment of parts and rows, in elements, so that kernels can load 16 bytes at a time.
const alignment = 16

func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

// part returns the elements that rank i of n combines: count elements from first on.
func part(op *backend.Op, n, i int) (first, count int) {
	switch op.Kind {
	case backend.ReduceScatter:
		return i * op.Count, op.Count
	case backend.ReduceScatterV:
		return sum(op.SrcCounts[:i]), op.SrcCounts[i]
	}
	each := aligned((op.Count + n - 1) / n)
	first = min(i*each, op.Count)
	return first, min(each, op.Count-first)
}

// exchange allocates rows for all ranks, and queues the calls that fill them.
func (c *call) exchange(src cuda.Ptr) (nccl.Result, error) {
	b, op, n := c.b, c.op, len(c.b.spec.Ranks)
	_, count := part(op, n, b.spec.Rank)
	row := c.bytes(aligned(count))
	mem, err := b.e.pool.Alloc(b.stream, int(row)*(n+1)+8*(n+1)) // the rows, the result, all factors, this rank's factor
	if err != nil {
		return nccl.Success, err
	}
	b.rows = peer.Rows{Src: mem, Stride: int64(aligned(count)), Dst: mem + row*cuda.Ptr(n), Factors: mem + row*cuda.Ptr(n+1)}
	mine := b.rows.Factors + cuda.Ptr(8*n)
	if op.Red == backend.PreMulSum {
		bits := math.Float64bits(op.Factor)
		for i, half := range [2]uint32{uint32(bits), uint32(bits >> 32)} {
			if err := b.stream.Fill32(mine+cuda.Ptr(4*i), half, 1); err != nil {
				return nccl.Success, err
			}
		}
	}
	c.note(b.e.lib.GroupStart())
	for i := range n {
		first, theirs := part(op, n, i)
		c.send(src+c.bytes(first), theirs, i)
		c.recv(mem+row*cuda.Ptr(i), count, i)
		if op.Red == backend.PreMulSum {
			c.note(b.comm.Send(mine, 1, nccl.Float64, i, c.stream))
			c.note(b.comm.Recv(b.rows.Factors+cuda.Ptr(8*i), 1, nccl.Float64, i, c.stream))
		}
	}
	c.note(b.e.lib.GroupEnd())
	return c.result, nil
}

// combine queues the reduction of this rank's part, and the calls that send the results to their places.
func (c *call) combine(dst cuda.Ptr) (nccl.Result, error) {
	b, op, n, me := c.b, c.op, len(c.b.spec.Ranks), c.b.spec.Rank
	first, count := part(op, n, me)
	switch {
	case op.Kind == backend.ReduceScatter, op.Kind == backend.ReduceScatterV:
		b.rows.Dst = dst
	case op.Kind == backend.AllReduce, me == op.Root:
		b.rows.Dst = dst + c.bytes(first)
	}
	if count > 0 {
		b.e.reduce.Lock()
		err := b.e.reducer.Queue(b.stream, op, b.rows, n, count)
		b.e.reduce.Unlock()
		if err != nil {
			return nccl.Success, err
		}
	}
	if op.Kind != backend.AllReduce && op.Kind != backend.Reduce {
		return nccl.Success, nil
	}
	c.note(b.e.lib.GroupStart())
	for i := range n {
		if i == me {
			continue
		}
		if op.Kind == backend.AllReduce || i == op.Root {
			c.send(b.rows.Dst, count, i)
		}
		if op.Kind == backend.AllReduce || me == op.Root {
			at, theirs := part(op, n, i)
			c.recv(dst+c.bytes(at), theirs, i)
		}
	}
	c.note(b.e.lib.GroupEnd())
	return c.result, nil
}

// freeRows frees the memory of exchange, after what is queued.
func (b *endpoint) freeRows() error {
	mem := b.rows.Src
	if mem == 0 {
		return nil
	}
	b.rows = peer.Rows{}
	return b.e.pool.Free(mem)
}
