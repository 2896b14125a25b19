package tcp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist/backend"
)

// send sends b as the next message of operation seq with this tag, in frames. It waits while the peer has too much to take.
func (p *pipe) send(kind backend.Kind, seq uint64, tag uint8, print uint64, b []byte) error {
	h := header{typ: frameData, kind: kind, gen: p.g.key.gen, group: p.g.key.id, seq: seq, tag: tag, nth: p.sent.next(seq, tag),
		total: uint64(len(b)), print: print}
	p.g.writing.Store(p.link)
	defer p.g.writing.Store(nil)
	for {
		part := b[:min(len(b), maxPayload)]
		if err := p.reserve(cost(len(part))); err != nil {
			return err
		}
		h.length = uint64(len(part))
		if err := p.link.out.write(&h, part); err != nil {
			return p.g.writeFailed(p.link, err)
		}
		p.g.counters.Headers.Add(headerBytes)
		p.g.counters.Wire[kind].Add(h.length)
		if b = b[len(part):]; len(b) == 0 {
			return nil
		}
		h.part++
	}
}

// reserve waits until n more bytes may be on the way.
func (p *pipe) reserve(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && !p.closed && p.flight+n > window {
		p.cond.Wait()
	}
	switch {
	case p.err != nil:
		return p.err
	case p.closed:
		return p.g.peerError(p.link.peer, backend.ErrLeft)
	}
	p.flight += n
	return nil
}

// credited handles the peer's report that it took n bytes.
func (p *pipe) credited(n uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > uint64(p.flight) {
		return fmt.Errorf("credit for %d bytes, only %d are on the way", n, p.flight)
	}
	p.flight -= int(n)
	p.cond.Broadcast()
	return nil
}
