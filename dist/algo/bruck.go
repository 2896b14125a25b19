package algo

import "github.com/ringo-ml/ringo/dist/backend"

// bruckAllGather: in the step of distance d = 1, 2, 4, … each rank gets from rank+d as many parts as it has, or as many as are missing.
// ⌈lg n⌉ steps for any n, while a ring takes n−1 (Bruck, Ho, Kipnis, Upfal, Weathersby 1997). Bytes: n−1 parts, S(n−1)/n for equal parts.
// Long parts are done in columns, to limit scratch memory.
func (m *Messages) bruckAllGather(op *backend.Op) error {
	n, rank, at := m.t.Size(), m.t.Rank(), even(op.Count*op.DType.Size())
	if op.Kind == backend.AllGatherV {
		at = rows(op.DstCounts, op.DType.Size())
	}
	dst := whole(op.Dst)
	copyPart(at.of(dst, rank), whole(op.Src))
	return m.columns(at, func(lo, hi int) error {
		for d := 1; d < n; d *= 2 {
			out := m.scratch(0, n*(hi-lo))[:0]
			length := 0
			for j := range min(d, n-d) {
				out = m.append(out, column(at.of(dst, (rank+j)%n), lo, hi))
				length += len(column(at.of(dst, (rank+d+j)%n), lo, hi))
			}
			in := m.scratch(1, length)
			if err := m.t.SendRecv((rank-d+n)%n, out, (rank+d)%n, in, 0); err != nil {
				return err
			}
			for j := range min(d, n-d) {
				in = in[m.copy(column(at.of(dst, (rank+d+j)%n), lo, hi), in):]
			}
		}
		return nil
	})
}

// bruckReduceScatter is the same in the other direction. It begins with the largest distance. Each rank sends rank+d its sums of the
// parts that rank+d keeps or sends further (Träff 2023, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"). Bytes: n−1
// parts, S(n−1)/n for equal parts. ⌈lg n⌉ steps for any n. Part r is combined along a tree with root r.
func (m *Messages) bruckReduceScatter(op *backend.Op) error {
	n, rank, at := m.t.Size(), m.t.Rank(), even(op.Count*op.DType.Size())
	if op.Kind == backend.ReduceScatterV {
		at = rows(op.SrcCounts, op.DType.Size())
	}
	dst, src := whole(op.Dst), whole(op.Src)
	m.fold.begin(op, n)
	return m.columns(at, func(lo, hi int) error {
		memory := m.scratch(0, n*(hi-lo))
		sum := func(j int) []byte { // of the part of rank+j
			return memory[j*(hi-lo):][:len(column(at.of(src, (rank+j)%n), lo, hi))]
		}
		for j := range n {
			m.copy(sum(j), m.fold.own(column(at.of(src, (rank+j)%n), lo, hi)))
		}
		for d := 1 << lg(n) / 2; d > 0; d /= 2 {
			out := m.scratch(1, n*(hi-lo))[:0]
			length := 0
			for j := range min(d, n-d) {
				out = m.append(out, sum(d+j))
				length += len(sum(j))
			}
			in := m.scratch(2, length)
			if err := m.t.SendRecv((rank+d)%n, out, (rank-d+n)%n, in, 0); err != nil {
				return err
			}
			for j := range min(d, n-d) {
				m.fold.add(sum(j), sum(j), in[:len(sum(j))])
				in = in[len(sum(j)):]
			}
		}
		result := column(dst, lo, hi)
		m.copy(result, sum(0))
		m.fold.end(result)
		return nil
	})
}

// columns calls do for bytes lo to hi of every part, so that the columns of all parts together have about the size of a chunk.
func (m *Messages) columns(at parts, do func(lo, hi int) error) error {
	n := m.t.Size()
	longest, width := at.longest(n), max(8, chunkBytes/n&^7) // whole elements
	for lo := 0; lo == 0 || lo < longest; lo += width {
		if err := do(lo, min(lo+width, longest)); err != nil {
			return err
		}
	}
	return nil
}

// column returns bytes lo to hi of b, or fewer at its end.
func column(b []byte, lo, hi int) []byte { return b[min(lo, len(b)):min(hi, len(b))] }
