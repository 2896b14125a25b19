package algo

import "github.com/ringo-ml/ringo/dist/backend"

// pipelineDepth is how many chunks of a slice a rank sends before it must forward the first of them. So a rank may be so many chunks
// behind its neighbor, and while it adds a chunk, the transport receives the next one.
const pipelineDepth = 4

// ringAllReduce: reduce-scatter, then all-gather of slices, both around the ring (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations"). Bytes: 2S(n−1)/n: rank r sends all slices but r, then all but r+1. 2(n−1) steps. Slice r is
// combined in the order r+1, r+2, …, r.
func (m *Messages) ringAllReduce(op *backend.Op) error {
	at, dst := m.slices(op, m.t.Size()), whole(op.Dst)
	own := at.of(dst, m.t.Rank())
	if err := m.ringReduce(op, own, whole(op.Src), at); err != nil {
		return err
	}
	return m.ringGather(dst, own, at)
}

// ringReduceScatter: partial results go around the ring, each rank adds its input, and the part of rank r ends at rank r. Bytes: all
// parts but rank r's own, S(n−1)/n for equal parts. n−1 steps. Part r is combined in the order r+1, r+2, …, r.
func (m *Messages) ringReduceScatter(op *backend.Op) error {
	at := even(op.Count * op.DType.Size())
	if op.Kind == backend.ReduceScatterV {
		at = rows(op.SrcCounts, op.DType.Size())
	}
	return m.ringReduce(op, whole(op.Dst), whole(op.Src), at)
}

// ringAllGather: every part goes around the ring. Bytes: rank r sends all parts but that of rank r+1, S(n−1)/n for equal parts. n−1
// steps.
func (m *Messages) ringAllGather(op *backend.Op) error {
	at := even(op.Count * op.DType.Size())
	if op.Kind == backend.AllGatherV {
		at = rows(op.DstCounts, op.DType.Size())
	}
	return m.ringGather(whole(op.Dst), whole(op.Src), at)
}

func (m *Messages) ringReduce(op *backend.Op, dst, src []byte, at parts) error {
	n := m.t.Size()
	m.fold.begin(op, n)
	if n == 1 {
		m.fold.copy(dst, src)
		return nil
	}
	chunks, sums := numChunks(at.longest(n)), m.scratch(0, pipelineDepth*min(at.longest(n), chunkBytes))
	for first := 0; first < chunks; first += pipelineDepth {
		for s := range n - 1 {
			for k := first; k < min(first+pipelineDepth, chunks); k++ {
				if err := m.ringHop(dst, src, sums, at, s, k); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ringHop is step s of chunk k: send the partial result of one slice, receive that of another and add to it. sums has room for each chunk
// that is on its way.
func (m *Messages) ringHop(dst, src, sums []byte, at parts, s, k int) error {
	n, rank := m.t.Size(), m.t.Rank()
	next, prev := (rank+1)%n, (rank-1+n)%n
	give, take := (rank-1-s+n)%n, (rank-2-s+2*n)%n
	sum := sums[k%pipelineDepth*(len(sums)/pipelineDepth):]
	out, mine := chunkOf(at.of(src, give), k), chunkOf(at.of(src, take), k)
	if s == 0 {
		out = m.fold.own(out)
	} else {
		out = sum[:len(out)]
	}
	in := m.scratch(1, len(mine))
	if err := m.t.SendRecv(next, out, prev, in, 0); err != nil {
		return err
	}
	if s < n-2 {
		m.fold.add(sum[:len(mine)], in, m.fold.own(mine))
		return nil
	}
	result := chunkOf(dst, k)
	m.fold.add(result, in, m.fold.own(mine))
	m.fold.end(result)
	return nil
}

func (m *Messages) ringGather(dst, src []byte, at parts) error {
	n, rank := m.t.Size(), m.t.Rank()
	next, prev := (rank+1)%n, (rank-1+n)%n
	copyPart(at.of(dst, rank), src)
	for s := range n - 1 {
		give, take := (rank-s+n)%n, (rank-s-1+n)%n
		if err := m.t.SendRecv(next, at.of(dst, give), prev, at.of(dst, take), 0); err != nil {
			return err
		}
	}
	return nil
}
