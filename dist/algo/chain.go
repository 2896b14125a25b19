package algo

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// chain: the buffer goes from the root through all ranks in order, in a pipeline of chunks, so that all links are busy (Watts and van de
// Geijn 1995, "A pipelined broadcast for multidimensional meshes"). Bytes: S, the last rank 0. n+s−2 steps for s chunks, after all have
// agreed (disseminate).
func (m *Messages) chain(op *backend.Op) error {
	order := make([]int, m.t.Size())
	for i := range order {
		order[i] = (op.Root + i) % len(order)
	}
	return m.chainAlong(op, order)
}

// chainAlong is a chain through the ranks in this order, from the first to the last.
func (m *Messages) chainAlong(op *backend.Op, order []int) error {
	if err := m.disseminate(); err != nil {
		return err
	}
	place := slices.Index(order, m.t.Rank())
	first, last := place == 0, place == len(order)-1
	var next, prev int
	if !first {
		prev = order[place-1]
	}
	if !last {
		next = order[place+1]
	}
	buf := whole(op.Dst)
	if first {
		buf = whole(op.Src)
		if op.Dst.Bytes > 0 {
			copyPart(whole(op.Dst), buf)
		}
	}
	for k := range numChunks(len(buf)) {
		if !first {
			if err := m.t.Recv(prev, 0, chunkOf(buf, k)); err != nil {
				return err
			}
		}
		if !last {
			if err := m.t.Send(next, 0, chunkOf(buf, k)); err != nil {
				return err
			}
		}
	}
	return nil
}
