package algo

// broadcast: the root sends S to each other rank. As an operation of its own, it begins when all have agreed. Bytes: root S(n−1), others
// 0. Three steps, or one within allReduce.
func (l *Linear) broadcast(root int, dst, src []byte) error {
	if l.t.Rank() != root {
		return l.recvPieces(root, dst)
	}
	for k := range numChunks(len(src)) {
		for p := range l.t.Size() {
			if p == root {
				continue
			}
			if err := l.t.Send(p, 0, chunkOf(src, k)); err != nil {
				return err
			}
		}
	}
	if len(dst) > 0 {
		copyPart(dst, src)
	}
	return nil
}

// gather: each rank sends its part to the root, after all have agreed. The root receives a chunk from each rank in turn, so that each
// rank sees progress. Bytes: root 0, others S/n. Three steps.
func (l *Linear) gather(root int, dst, src []byte, part int) error {
	if l.t.Rank() != root {
		return l.sendPieces(root, src)
	}
	at := even(part)
	copyPart(at.of(dst, root), src)
	for k := range numChunks(part) {
		for p := range l.t.Size() {
			if p == root {
				continue
			}
			if err := l.t.Recv(p, 0, chunkOf(at.of(dst, p), k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// scatter: the root sends each rank its part, after all have agreed, a chunk to each in turn. Bytes: root S(n−1)/n, others 0. Three
// steps.
func (l *Linear) scatter(root int, dst, src []byte, part int) error {
	if l.t.Rank() != root {
		return l.recvPieces(root, dst)
	}
	at := even(part)
	copyPart(dst, at.of(src, root))
	for k := range numChunks(part) {
		for p := range l.t.Size() {
			if p == root {
				continue
			}
			if err := l.t.Send(p, 0, chunkOf(at.of(src, p), k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendPieces sends b to peer in chunks.
func (l *Linear) sendPieces(peer int, b []byte) error {
	for k := range numChunks(len(b)) {
		if err := l.t.Send(peer, 0, chunkOf(b, k)); err != nil {
			return err
		}
	}
	return nil
}

// recvPieces fills b with what sendPieces sends.
func (l *Linear) recvPieces(peer int, b []byte) error {
	for k := range numChunks(len(b)) {
		if err := l.t.Recv(peer, 0, chunkOf(b, k)); err != nil {
			return err
		}
	}
	return nil
}

// allGather: each rank sends its part to every other. In step s it sends to rank+s and receives from rank−s. Bytes: the rank's part ×
// (n−1), S(n−1)/n for equal parts. n−1 steps.
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

// allToAllV is allToAll with a barrier at the end: what a rank sends may differ from what its peer expects, and only the peer notices it.
// n+1 steps.
func (l *Linear) allToAllV(dst, src []byte, in, out parts) error {
	if err := l.allToAll(dst, src, in, out); err != nil {
		return err
	}
	return l.barrier()
}

// allToAll: each rank sends part p of its buffer to rank p, in the steps of allGather. Bytes: all but the rank's own part, S(n−1)/n for
// equal parts. n−1 steps.
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

// barrier: all ranks send to rank 0, and rank 0 answers. Bytes: 0 (2(n−1) empty messages). Two steps.
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
