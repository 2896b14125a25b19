package tcp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist/backend"
)

// send sends b as the next message of operation seq with this tag. It waits while the peer has too much to take. The parts of
// a large message take turns on the data connections; the first part is always on the first one, and so the first parts of
// all messages arrive in order.
func (p *pipe) send(kind backend.Kind, seq uint64, tag uint8, print uint64, b []byte) error {
	h := header{typ: frameData, kind: kind, gen: p.g.key.gen, group: p.g.key.id, seq: seq, tag: tag, nth: p.sent.next(seq, tag),
		total: uint64(len(b)), print: print}
	wires, window := p.link.out, smallWindow
	if len(b) > smallMessage {
		window = largeWindow
	}
	step := partBytes(len(b), len(wires))
	p.g.writing.Store(p.link)
	defer p.g.writing.Store(nil)
	defer p.beside.Wait()
	for i := 0; ; i++ {
		part := b[:min(len(b), step)]
		if err := p.reserve(cost(len(part)), window); err != nil {
			return err
		}
		h.length = uint64(len(part))
		if w := wires[i%len(wires)]; w == wires[0] {
			if err := p.write(w, &h, part); err != nil {
				return p.g.writeFailed(p.link, err)
			}
		} else {
			p.writeBeside(w, h, part)
		}
		if b = b[len(part):]; len(b) == 0 {
			return p.written()
		}
		h.part += uint32(step / partUnit)
	}
}

func (p *pipe) write(w *wire, h *header, part []byte) error {
	if err := w.write(h, part); err != nil {
		return err
	}
	p.g.counters.Headers.Add(headerBytes)
	p.g.counters.Wire[h.kind].Add(uint64(len(part)))
	return nil
}

// partBytes returns the length of the parts of a message of n bytes on so many connections.
func partBytes(n, wires int) int {
	if n <= smallMessage {
		return maxPayload
	}
	units := (n + wires*partUnit - 1) / (wires * partUnit)
	return min(units*partUnit, maxPayload)
}

// writeBeside writes a frame while the worker writes others; written waits for all of them.
func (p *pipe) writeBeside(w *wire, h header, part []byte) {
	p.beside.Go(func() {
		if err := p.write(w, &h, part); err != nil {
			p.failed.CompareAndSwap(nil, &err)
		}
	})
}

func (p *pipe) written() error {
	p.beside.Wait()
	if err := p.failed.Load(); err != nil {
		return p.g.writeFailed(p.link, *err)
	}
	return nil
}

// reserve waits until n more bytes may be on the way.
func (p *pipe) reserve(n, window int) error {
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
