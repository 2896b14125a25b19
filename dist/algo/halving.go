package algo

import (
	"math/bits"

	"github.com/ringo-ml/ringo/dist/backend"
)

// halvingDoubling: reduce-scatter by recursive halving, then all-gather by recursive doubling (Rabenseifner 2004, "Optimization of
// collective reduction operations"; Thakur, Rabenseifner, Gropp 2005). Bytes: 2S(p−1)/p among p = 2^k ranks. For other n, p is the
// largest power of two below n. Each even rank below 2(n−p) sends its input S to the next rank, does not take part, and gets the result S
// at the end. So of these two, one sends S and the other S + 2S(p−1)/p. 2·lg p steps, plus 2 for such pairs. The total is 2S(n−1) in
// either case.
func (m *Messages) halvingDoubling(op *backend.Op) error {
	n, rank := m.t.Size(), m.t.Rank()
	p := 1 << (bits.Len(uint(n)) - 1)
	folded := 2 * (n - p)
	src, dst := whole(op.Src), whole(op.Dst)
	m.fold.begin(op, n)
	m.fold.copy(dst, src)
	aside := rank < folded && rank%2 == 0
	switch {
	case aside:
		return m.standAside(rank+1, dst)
	case rank < folded:
		if err := m.addFrom(rank-1, dst); err != nil {
			return err
		}
	}
	if err := m.halve(dst, m.slices(op, p), folded); err != nil {
		return err
	}
	if rank < folded {
		return m.t.Send(rank-1, 0, dst)
	}
	return nil
}

// standAside sends this rank's input to peer and receives the result.
func (m *Messages) standAside(peer int, dst []byte) error {
	for k := range numChunks(len(dst)) {
		if err := m.t.Send(peer, 0, chunkOf(dst, k)); err != nil {
			return err
		}
	}
	return m.t.Recv(peer, 0, dst)
}

// addFrom adds what peer sends to dst.
func (m *Messages) addFrom(peer int, dst []byte) error {
	for k := range numChunks(len(dst)) {
		to := chunkOf(dst, k)
		in := m.scratch(1, len(to))
		if err := m.t.Recv(peer, 0, in); err != nil {
			return err
		}
		m.fold.add(to, to, in)
	}
	return nil
}

// halve does the two phases among the p ranks that take part. They have places 0 to p−1, and p slices.
func (m *Messages) halve(dst []byte, at parts, folded int) error {
	p, place := at.n, m.t.Rank()-folded/2
	if m.t.Rank() < folded {
		place = m.t.Rank() / 2
	}
	rankOf := func(place int) int {
		if place < folded/2 {
			return 2*place + 1
		}
		return place + folded/2
	}
	lo := 0 // this rank still reduces slices lo to lo+2d, then half of them
	for d := p / 2; d > 0; d /= 2 {
		keep, give := lo, lo+d
		if place&d != 0 {
			keep, give = give, keep
		}
		if err := m.swapAdd(rankOf(place^d), at.span(dst, give, give+d), at.span(dst, keep, keep+d)); err != nil {
			return err
		}
		lo = keep
	}
	m.fold.end(at.of(dst, place))
	for d := 1; d < p; d *= 2 { // this rank has slices lo to lo+d
		peer, other := rankOf(place^d), lo^d
		if err := m.t.SendRecv(peer, at.span(dst, lo, lo+d), peer, at.span(dst, other, other+d), 0); err != nil {
			return err
		}
		lo &^= d
	}
	return nil
}

// swapAdd sends give to peer and adds what comes from it to keep.
func (m *Messages) swapAdd(peer int, give, keep []byte) error {
	for k := range numChunks(max(len(give), len(keep))) {
		to := chunkOf(keep, k)
		in := m.scratch(1, len(to))
		if err := m.t.SendRecv(peer, chunkOf(give, k), peer, in, 0); err != nil {
			return err
		}
		m.fold.add(to, to, in)
	}
	return nil
}
