package algo

import "github.com/ringo-ml/ringo/dist/backend"

// pairwise: n−1 exchanges. If n is a power of two, the partner of step s is rank XOR s, so that both directions of one link are busy.
// Otherwise a rank sends to rank+s and receives from rank−s, as linear does (Thakur, Rabenseifner, Gropp 2005). Bytes: all but the rank's
// own part, S(n−1)/n for equal parts. n−1 steps. AllToAllV ends with a barrier (disseminate): what a rank sends may differ from what its
// peer expects, and only the peer notices it.
func (m *Messages) pairwise(op *backend.Op) error {
	n, rank, size := m.t.Size(), m.t.Rank(), op.DType.Size()
	in, out := even(op.Count*size), even(op.Count*size)
	if op.Kind == backend.AllToAllV {
		in, out = rows(op.DstCounts, size), rows(op.SrcCounts, size)
	}
	dst, src := whole(op.Dst), whole(op.Src)
	copyPart(in.of(dst, rank), out.of(src, rank))
	for s := 1; s < n; s++ {
		to, from := (rank+s)%n, (rank-s+n)%n
		if n&(n-1) == 0 {
			to, from = rank^s, rank^s
		}
		if err := m.t.SendRecv(to, out.of(src, to), from, in.of(dst, from), 0); err != nil {
			return err
		}
	}
	if op.Kind == backend.AllToAllV {
		return m.disseminate()
	}
	return nil
}

// bruck: a block that must go j ranks further goes there by the binary digits of j, in ⌈lg n⌉ steps instead of n−1. This helps with many
// ranks and small parts (Bruck, Ho, Kipnis, Upfal, Weathersby 1997, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems"). Bytes: S/n for each binary digit 1 of the numbers below n, which is (S/2)·lg n if n is a power of two. Long
// parts are done in columns, to limit scratch memory.
func (m *Messages) bruck(op *backend.Op) error {
	n := m.t.Size()
	part := op.Count * op.DType.Size()
	width := max(1, chunkBytes/n)
	for lo := 0; lo == 0 || lo < part; lo += width {
		if err := m.bruckColumn(whole(op.Dst), whole(op.Src), part, lo, min(lo+width, part)); err != nil {
			return err
		}
	}
	return nil
}

// bruckColumn moves bytes lo to hi of every part.
func (m *Messages) bruckColumn(dst, src []byte, part, lo, hi int) error {
	n, rank, w := m.t.Size(), m.t.Rank(), hi-lo
	all := m.scratch(0, n*w) // block j must go j ranks further
	block := func(j int) []byte { return all[j*w : (j+1)*w] }
	for j := range n {
		m.copy(block(j), src[(rank+j)%n*part+lo:][:w])
	}
	for d := 1; d < n; d *= 2 {
		out := m.scratch(1, n*w)[:0]
		for j := range n {
			if j&d != 0 {
				out = m.append(out, block(j))
			}
		}
		in := m.scratch(2, len(out))
		if err := m.t.SendRecv((rank+d)%n, out, (rank-d+n)%n, in, 0); err != nil {
			return err
		}
		for j := range n {
			if j&d != 0 {
				in = in[m.copy(block(j), in):]
			}
		}
	}
	for j := range n {
		m.copy(dst[(rank-j+n)%n*part+lo:][:w], block(j))
	}
	return nil
}
