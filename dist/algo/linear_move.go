package algo

// broadcast: the root sends S to each other rank, as an operation of its own after all have agreed. Bytes: root S(n−1),
// others 0. Three steps, or one within allReduce.
func (l *Linear) broadcast(root int, dst, src []byte) error {
	n, rank := l.t.Size(), l.t.Rank()
	if rank != root {
		for k := range pieces(len(dst)) {
			if err := l.t.Recv(root, 0, piece(dst, k)); err != nil {
				return err
			}
		}
		return nil
	}
	for k := range pieces(len(src)) {
		for p := range n {
			if p == root {
				continue
			}
			if err := l.t.Send(p, 0, piece(src, k)); err != nil {
				return err
			}
		}
	}
	if len(dst) > 0 {
		copyPart(dst, src)
	}
	return nil
}

// gather: each rank sends its part to the root, after all have agreed. Bytes: root 0, others S/n. Three steps.
func (l *Linear) gather(root int, dst, src []byte, part int) error {
	if l.t.Rank() != root {
		return l.t.Send(root, 0, src)
	}
	for p := range l.t.Size() {
		to := even(part).of(dst, p)
		if p == root {
			copyPart(to, src)
		} else if err := l.t.Recv(p, 0, to); err != nil {
			return err
		}
	}
	return nil
}

// scatter: the root sends each rank its part, after all have agreed. Bytes: root S(n−1)/n, others 0. Three steps.
func (l *Linear) scatter(root int, dst, src []byte, part int) error {
	if l.t.Rank() != root {
		return l.t.Recv(root, 0, dst)
	}
	for p := range l.t.Size() {
		from := even(part).of(src, p)
		if p == root {
			copyPart(dst, from)
		} else if err := l.t.Send(p, 0, from); err != nil {
			return err
		}
	}
	return nil
}

// allGather: each rank sends its part to every other, in pairs: in step s to rank+s, from rank−s. Bytes: every rank its
// part × (n−1), which is S(n−1)/n for equal parts. n−1 steps.
func (l *Linear) allGather(dst, src []byte, at parts) error {
	n, rank := l.t.Size(), l.t.Rank()
	copyPart(at.of(dst, rank), src)
	for s := 1; s < n; s++ {
		to, from := (rank+s)%n, (rank-s+n)%n
		if err := l.t.SendRecv(to, src, from, at.of(dst, from), 0); err != nil {
			return err
		}
	}
	return nil
}

// allToAllV is allToAll, and a barrier after it: what a rank sends and what its peer expects may differ, and only the
// peer sees it. n+1 steps.
func (l *Linear) allToAllV(dst, src []byte, in, out parts) error {
	if err := l.allToAll(dst, src, in, out); err != nil {
		return err
	}
	return l.barrier()
}

// allToAll: each rank sends part p of its buffer to rank p, in pairs as allGather. Bytes: every rank what is not for
// itself, which is S(n−1)/n for equal parts. n−1 steps.
func (l *Linear) allToAll(dst, src []byte, in, out parts) error {
	n, rank := l.t.Size(), l.t.Rank()
	copyPart(in.of(dst, rank), out.of(src, rank))
	for s := 1; s < n; s++ {
		to, from := (rank+s)%n, (rank-s+n)%n
		if err := l.t.SendRecv(to, out.of(src, to), from, in.of(dst, from), 0); err != nil {
			return err
		}
	}
	return nil
}

// barrier: everyone tells rank 0, and rank 0 answers. Bytes: 0 (2(n−1) empty messages). Two steps.
func (l *Linear) barrier() error {
	n := l.t.Size()
	if l.t.Rank() != 0 {
		return l.t.SendRecv(0, nil, 0, nil, 0)
	}
	for p := 1; p < n; p++ {
		if err := l.t.Recv(p, 0, nil); err != nil {
			return err
		}
	}
	for p := 1; p < n; p++ {
		if err := l.t.Send(p, 0, nil); err != nil {
			return err
		}
	}
	return nil
}
