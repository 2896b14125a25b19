package algo

import "github.com/ringo-ml/ringo/dist/backend"

// chain: the buffer goes from the root through all ranks in order, chunk behind chunk, so that all links are busy (Watts and van
// de Geijn 1995, "A pipelined broadcast for multidimensional meshes"). Bytes: S, the last
// rank 0. n+s−2 steps for s chunks, after all have agreed (disseminate).
func (m *Messages) chain(op *backend.Op) error {
	if err := m.disseminate(); err != nil {
		return err
	}
	n, rank := m.t.Size(), m.t.Rank()
	next, prev := (rank+1)%n, (rank-1+n)%n
	first, last := rank == op.Root, next == op.Root
	buf := whole(op.Dst)
	if first {
		buf = whole(op.Src)
		if op.Dst.Bytes > 0 {
			copyPart(whole(op.Dst), buf)
		}
	}
	for k := range pieces(len(buf)) {
		if !first {
			if err := m.t.Recv(prev, 0, piece(buf, k)); err != nil {
				return err
			}
		}
		if !last {
			if err := m.t.Send(next, 0, piece(buf, k)); err != nil {
				return err
			}
		}
	}
	return nil
}
