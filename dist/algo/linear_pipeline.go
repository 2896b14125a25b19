package algo

// resultsBehind is how many chunks later than its input the result of a chunk is sent. With 1, the links wait for the reductions.
const resultsBehind = 2

// reduceChunks is the part of reduceScatter for more than one chunk. A second goroutine sends chunks as fast as the peers receive them,
// while this one reduces those that arrive. It has ended before reduceChunks returns. No bytes are overwritten before they are sent: dst
// is at most the part of src that stays on this rank, and the result of a chunk comes back only after this rank has sent its input.
func (l *Linear) reduceChunks(chunks int, dst, src []byte, at parts, all []byte) error {
	if l.v != nil {
		return l.virtualChunks(chunks, dst, src, at, all)
	}
	reduced, sent := make(chan struct{}, chunks), make(chan error, 1)
	results := dst
	if all == nil {
		results = nil
	}
	next := func() bool { _, ok := <-reduced; return ok }
	go func() { sent <- l.sendChunks(chunks, src, at, results, next) }()
	err := l.takeChunks(chunks, dst, src, at, all, func() { reduced <- struct{}{} })
	close(reduced)
	if failed := <-sent; err == nil {
		err = failed
	}
	return err
}

// virtualChunks is reduceChunks with two threads in virtual time.
func (l *Linear) virtualChunks(chunks int, dst, src []byte, at parts, all []byte) error {
	results := dst
	if all == nil {
		results = nil
	}
	join := l.v.Fork(func() error { return l.sendChunks(chunks, src, at, results, l.v.Await) })
	if err := l.takeChunks(chunks, dst, src, at, all, l.v.Post); err != nil {
		return err
	}
	return join()
}

// takeChunks reduces the chunks, calls reduced after each, and, if all is not nil, receives the results of the others.
func (l *Linear) takeChunks(chunks int, dst, src []byte, at parts, all []byte, reduced func()) error {
	n, rank := l.t.Size(), l.t.Rank()
	for k := range chunks + resultsBehind {
		if k < chunks {
			if err := l.reduceChunk(chunkOf(dst, k), chunkOf(at.of(src, rank), k)); err != nil {
				return err
			}
			reduced()
		}
		for s := 1; s < n && all != nil && k >= resultsBehind; s++ {
			from := (rank - s + n) % n
			if err := l.t.Recv(from, resultTag, chunkOf(at.of(all, from), k-resultsBehind)); err != nil {
				return err
			}
		}
	}
	return nil
}

// reduceChunk receives the next chunk from all others and reduces it with mine into dst.
func (l *Linear) reduceChunk(dst, mine []byte) (err error) {
	n, rank, srcs := l.t.Size(), l.t.Rank(), l.inputs()
	srcs[rank] = mine
	for s := 1; s < n; s++ {
		from := (rank - s + n) % n
		if srcs[from], err = l.t.Take(from, 0, len(mine)); err != nil {
			return err
		}
	}
	l.red.Reduce(dst, srcs)
	return nil
}

// sendChunks sends the inputs and, if results is not nil, each result when it is reduced. next waits for the next one.
func (l *Linear) sendChunks(chunks int, src []byte, at parts, results []byte, next func() bool) error {
	n, rank := l.t.Size(), l.t.Rank()
	for k := range chunks + resultsBehind {
		for s := 1; s < n && k < chunks; s++ {
			to := (rank + s) % n
			if err := l.t.Send(to, 0, chunkOf(at.of(src, to), k)); err != nil {
				return err
			}
		}
		if results == nil || k < resultsBehind {
			continue
		}
		if !next() { // the reduction has ended early
			return nil
		}
		for s := 1; s < n; s++ {
			if err := l.t.Send((rank+s)%n, resultTag, chunkOf(results, k-resultsBehind)); err != nil {
				return err
			}
		}
	}
	return nil
}
