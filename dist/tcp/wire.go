package tcp

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
)

const (
	recordBytes = 16 << 10 // the payload of a TLS record
	readBytes   = 64 << 10 // read from the system at once
	packBytes   = 64 << 10 // written to the system at once, where TLS would write record by record
)

// wire is one connection of a link. Any number of goroutines write to it, one at a time; one reads.
type wire struct {
	l    *link
	conn net.Conn // TLS, or the connection itself
	raw  net.Conn // below the TLS
	seal bool     // conn is not encrypted: frames are sealed

	wmu  turn
	wbuf []byte // header and head of a payload: one record
	vec  [2][]byte
	pack *packed // below the TLS of a data connection; else nil
	sent uint32  // frames written, guarded by wmu

	r      *bufio.Reader
	got    uint32 // checksum of the payload so far
	number uint32 // of the frame that is read next, where frames are sealed
	parted bool   // the peer will write nothing more
}

// turn is a mutex whose holder may wait for the network: those behind it wait on a channel, which testing/synctest
// understands.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

func newWire(l *link, conn net.Conn) *wire {
	w := &wire{l: l, conn: conn, raw: conn, seal: true, wbuf: make([]byte, recordBytes), wmu: make(turn, 1)}
	size := readBytes
	if c, ok := conn.(*tls.Conn); ok {
		w.raw, w.seal, size = c.NetConn(), false, recordBytes
	}
	w.r = bufio.NewReaderSize(conn, size)
	return w
}

// newDataWire makes a wire of a connection that was dialed for data. Both sides have shown who they are; without
// encryption they go on below the TLS.
func newDataWire(l *link, c *tls.Conn, plain bool) (*wire, error) {
	p := c.NetConn().(*packed)
	if plain {
		if p.r.Buffered() > 0 {
			return nil, errors.New("tcp: the peer sent data too early")
		}
		return newWire(l, p.Conn), nil
	}
	p.hold = true
	w := newWire(l, c)
	w.pack = p
	return w, nil
}

// write sends a frame; it blocks while the peer does not read.
func (w *wire) write(h *header, payload []byte) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	h.put(w.wbuf)
	if w.seal {
		w.sent = seal(w.wbuf, w.sent, payload)
	}
	n := len(payload)
	if !w.seal || n <= len(w.wbuf)-headerBytes {
		n = copy(w.wbuf[headerBytes:], payload)
		if _, err := w.conn.Write(w.wbuf[:headerBytes+n]); err != nil {
			return err
		}
		if n < len(payload) {
			if _, err := w.conn.Write(payload[n:]); err != nil {
				return err
			}
		}
		return w.flush()
	}
	w.vec = [2][]byte{w.wbuf[:headerBytes], payload}
	both := net.Buffers(w.vec[:])
	_, err := both.WriteTo(w.conn)
	return err
}

// writePosted writes frames that were posted.
func (w *wire) writePosted(frames []byte) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	for b := frames; w.seal && len(b) > 0; {
		end := headerBytes + binary.LittleEndian.Uint32(b[16:])
		w.sent = seal(b, w.sent, b[headerBytes:end])
		b = b[end:]
	}
	if _, err := w.conn.Write(frames); err != nil {
		return err
	}
	return w.flush()
}

func (w *wire) flush() error {
	if w.pack == nil {
		return nil
	}
	return w.pack.flush()
}

// header reads the next frame's.
func (w *wire) header(h *header) error {
	b, err := w.r.Peek(headerBytes)
	if err != nil {
		if len(b) > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := h.parse(b, w.number); err != nil {
		return fmt.Errorf("broke the protocol: %w", err)
	}
	if w.seal {
		w.number++
	}
	w.got = 0
	_, err = w.r.Discard(headerBytes)
	return err
}

// some returns the next bytes of the payload, at most n; they are valid until the next call.
func (w *wire) some(n int) ([]byte, error) {
	if w.r.Buffered() == 0 {
		if _, err := w.r.Peek(1); err != nil {
			return nil, err
		}
	}
	b, _ := w.r.Peek(min(n, w.r.Buffered())) // is there
	if w.seal {
		w.got = crc32.Update(w.got, castagnoli, b)
	}
	_, err := w.r.Discard(len(b))
	return b, err
}

// fill reads the whole payload.
func (w *wire) fill(h *header, b []byte) error {
	if _, err := io.ReadFull(w.r, b); err != nil {
		return err
	}
	if w.seal {
		w.got = crc32.Checksum(b, castagnoli)
	}
	return w.check(h)
}

// check is called when the payload of h was read, before anyone relies on it.
func (w *wire) check(h *header) error {
	if w.got != h.sum {
		return fmt.Errorf("broke the protocol: payload has checksum %08x, want %08x: bytes were changed", w.got, h.sum)
	}
	return nil
}

// payload reads the payload of a control frame.
func (w *wire) payload(h *header) ([]byte, error) {
	b := make([]byte, h.length)
	return b, w.fill(h, b)
}

// packed is a connection below TLS: it reads several records at once and, when told to hold, gathers those that are
// written.
type packed struct {
	net.Conn
	r    *bufio.Reader
	hold bool
	mu   sync.Mutex // TLS may write an alert while it reads
	b    []byte
}

func newPacked(c net.Conn) *packed { return &packed{Conn: c, r: bufio.NewReaderSize(c, readBytes)} }

func (p *packed) Read(b []byte) (int, error) { return p.r.Read(b) }

func (p *packed) Write(b []byte) (int, error) {
	if !p.hold {
		return p.Conn.Write(b)
	}
	p.mu.Lock()
	p.b = append(p.b, b...)
	full := len(p.b) >= packBytes
	p.mu.Unlock()
	if full {
		return len(b), p.flush()
	}
	return len(b), nil
}

func (p *packed) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.b) == 0 {
		return nil
	}
	_, err := p.Conn.Write(p.b)
	p.b = p.b[:0]
	return err
}
