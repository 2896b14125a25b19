package algo

import (
	"math/bits"

	"github.com/ringo-ml/ringo/dist/backend"
)

// subtree returns this rank's place in the binomial tree, counted from the root, and the width of the subtree below it:
// its children are at place+1, +2, +4, … below place+width, its parent at place−width.
func (m *Messages) subtree(root int) (place, width int) {
	n := m.t.Size()
	place = (m.t.Rank() - root + n) % n
	if place == 0 {
		return 0, 1 << bits.Len(uint(n-1))
	}
	return place, place & -place
}

// binomialBroadcast: who has the buffer sends it to half of those who have not (the binomial tree of MPICH; Thakur,
// Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH"). Bytes: S for each child:
// root S⌈lg n⌉, S(n−1) in all. ⌈lg n⌉ steps, chunk behind chunk, after all have agreed (disseminate).
func (m *Messages) binomialBroadcast(op *backend.Op) error {
	if err := m.disseminate(); err != nil {
		return err
	}
	n := m.t.Size()
	place, width := m.subtree(op.Root)
	buf := whole(op.Dst)
	if place == 0 {
		buf = whole(op.Src)
		if op.Dst.Bytes > 0 {
			copyPart(whole(op.Dst), buf)
		}
	}
	for k := range pieces(len(buf)) {
		if place > 0 {
			if err := m.t.Recv((place-width+op.Root)%n, 0, piece(buf, k)); err != nil {
				return err
			}
		}
		for d := width / 2; d > 0; d /= 2 {
			if place+d >= n {
				continue
			}
			if err := m.t.Send((place+d+op.Root)%n, 0, piece(buf, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// binomialReduce: the same tree upwards; each rank adds what its children send to its input and passes the sum on.
// Bytes: S, root 0. ⌈lg n⌉ steps, chunk behind chunk, after all have agreed (disseminate). Ranks are counted from the
// root; those of a subtree are combined before it meets another.
func (m *Messages) binomialReduce(op *backend.Op) error {
	if err := m.disseminate(); err != nil {
		return err
	}
	n := m.t.Size()
	place, width := m.subtree(op.Root)
	src, dst := whole(op.Src), whole(op.Dst)
	m.fold.begin(op, n)
	for k := range pieces(len(src)) {
		sum := m.fold.own(piece(src, k))
		to := m.scratch(0, linearChunk)[:len(sum)]
		if place == 0 {
			to = piece(dst, k)
		}
		for d := 1; d < width && place+d < n; d *= 2 {
			in := m.scratch(1, linearChunk)[:len(sum)]
			if err := m.t.Recv((place+d+op.Root)%n, 0, in); err != nil {
				return err
			}
			m.fold.add(to, sum, in)
			sum = to
		}
		if place == 0 {
			copyPart(to, sum)
			m.fold.end(to)
		} else if err := m.t.Send((place-width+op.Root)%n, 0, sum); err != nil {
			return err
		}
	}
	return nil
}
