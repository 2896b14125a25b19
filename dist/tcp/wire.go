package tcp

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/ringo-ml/ringo/internal/kernel"
)

const (
	tlsRecordBytes  = 16 << 10  // the payload of a TLS record
	tlsRecordHeader = 5         // of a TLS record
	readBytes       = 64 << 10  // read from the system at once
	cipherBuffer    = 128 << 10 // read and written at once, where frames are encrypted
)

// wire is one connection of a link. Any number of goroutines write to it, one at a time; one reads.
type wire struct {
	l           *link
	conn        net.Conn      // TLS, or the connection itself
	raw         net.Conn      // below the TLS
	checksummed bool          // conn is not encrypted: frames have checksums
	cipher      *recordCipher // frames are encrypted; else nil

	wmu  channelMutex
	wbuf []byte // header and head of a payload; or records
	vec  [2][]byte
	sent uint32 // frames written, guarded by wmu

	r      *bufio.Reader
	got    uint32 // checksum of the payload so far
	number uint32 // of the frame that is read next, where frames have checksums
	next   []byte // of the payload, in r; a record, where frames are encrypted
	done   bool   // the peer will write nothing more
}

// channelMutex is a mutex whose holder may wait for the network: those behind it wait on a channel, which testing/synctest
// understands.
type channelMutex chan struct{}

func (t channelMutex) Lock()   { t <- struct{}{} }
func (t channelMutex) Unlock() { <-t }

func newWire(l *link, conn net.Conn) *wire {
	w := &wire{l: l, conn: conn, raw: conn, checksummed: true, wbuf: make([]byte, tlsRecordBytes), wmu: make(channelMutex, 1)}
	size := readBytes
	if c, ok := conn.(*tls.Conn); ok {
		w.raw, w.checksummed, size = c.NetConn(), false, tlsRecordBytes
	}
	w.r = bufio.NewReaderSize(conn, size)
	return w
}

// newDataWire makes a wire of a connection that was dialed for data. Both sides have shown who they are, and go on below the
// TLS: with records or, without encryption, checksums.
func newDataWire(l *link, c *tls.Conn, plain bool) (*wire, error) {
	p := c.NetConn().(*tlsConn) // the peer may have sent something already, which its reader has
	w := &wire{l: l, conn: p.Conn, raw: p.Conn, r: p.r, checksummed: plain, wmu: make(channelMutex, 1)}
	if plain {
		w.wbuf = make([]byte, tlsRecordBytes)
		return w, nil
	}
	var err error
	w.cipher, err = newRecordCipher(c)
	w.r = bufio.NewReaderSize(p.r, cipherBuffer)
	w.wbuf = make([]byte, 0, cipherBuffer+headerBytes+3*recordTag)
	return w, err
}

// write sends a frame; it blocks while the peer does not read.
func (w *wire) write(h *header, payload []byte) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	if w.cipher != nil {
		return w.writeEncrypted(h, payload)
	}
	h.put(w.wbuf)
	if w.checksummed {
		w.sent = checksumFrame(w.wbuf, w.sent, payload)
	}
	if len(payload) <= len(w.wbuf)-headerBytes {
		n := copy(w.wbuf[headerBytes:], payload)
		_, err := w.conn.Write(w.wbuf[:headerBytes+n])
		return err
	}
	w.vec = [2][]byte{w.wbuf[:headerBytes], payload}
	both := net.Buffers(w.vec[:])
	_, err := both.WriteTo(w.conn)
	return err
}

// writeEncrypted sends a frame in records, several at once.
func (w *wire) writeEncrypted(h *header, payload []byte) error {
	head := w.wbuf[:headerBytes]
	h.put(head)
	out, err := w.cipher.seal(head[:0], head)
	for err == nil && len(payload) > 0 {
		n := min(len(payload), recordPlain)
		if len(out)+n+recordTag > cap(out) {
			if _, err = w.conn.Write(out); err != nil {
				break
			}
			out = out[:0]
		}
		out, err = w.cipher.seal(out, payload[:n])
		payload = payload[n:]
	}
	if err == nil {
		_, err = w.conn.Write(out)
	}
	return err
}

// writePosted writes frames that were posted.
func (w *wire) writePosted(frames []byte) error {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	for b := frames; w.checksummed && len(b) > 0; {
		end := headerBytes + binary.LittleEndian.Uint32(b[16:])
		w.sent = checksumFrame(b, w.sent, b[headerBytes:end])
		b = b[end:]
	}
	_, err := w.conn.Write(frames)
	return err
}

// header reads the next frame's.
func (w *wire) header(h *header) error {
	n := headerBytes
	if w.cipher != nil {
		n += recordTag
	}
	b, err := w.r.Peek(n)
	if err != nil {
		if len(b) > 0 && err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if w.cipher != nil {
		if err := w.cipher.open(b[:headerBytes], b); err != nil {
			return err
		}
	}
	if err := h.parse(b, w.number); err != nil {
		return fmt.Errorf("broke the protocol: %w", err)
	}
	if w.checksummed {
		w.number++
	}
	w.got = 0
	_, err = w.r.Discard(n)
	return err
}

// await waits for the next bytes of the payload, of which left are left, and returns how many there are. take must follow.
func (w *wire) await(left int) (n int, err error) {
	if w.cipher != nil {
		n = min(left, recordPlain)
		w.next, err = w.r.Peek(n + recordTag)
		return n, err
	}
	if w.r.Buffered() == 0 {
		if _, err = w.r.Peek(1); err != nil {
			return 0, err
		}
	}
	w.next, err = w.r.Peek(min(left, w.r.Buffered())) // is there
	return len(w.next), err
}

// take puts what await found to dst, if that is not nil. It does not wait.
func (w *wire) take(dst []byte) error {
	b := w.next
	w.next = nil
	switch {
	case w.cipher != nil:
		if dst == nil {
			dst = b[:len(b)-recordTag]
		}
		if err := w.cipher.open(dst, b); err != nil {
			return err
		}
	default:
		copy(dst, b)
		if w.checksummed {
			w.got = kernel.CRC32C(w.got, b)
		}
	}
	_, err := w.r.Discard(len(b))
	return err
}

// fill reads the whole payload.
func (w *wire) fill(h *header, b []byte) error {
	if w.cipher == nil {
		if _, err := io.ReadFull(w.r, b); err != nil {
			return err
		}
		if w.checksummed {
			w.got = kernel.CRC32C(0, b)
		}
		return w.check(h)
	}
	for len(b) > 0 {
		n, err := w.await(len(b))
		if err == nil {
			err = w.take(b[:n])
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
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

// tlsConn is a connection below TLS. It reads several records at once, but hands them over one at a time: what follows the
// last one is not TLS's any more, and stays in r.
type tlsConn struct {
	net.Conn
	r    *bufio.Reader
	left int // of the record
}

func newTLSConn(c net.Conn) *tlsConn { return &tlsConn{Conn: c, r: bufio.NewReaderSize(c, readBytes)} }

func (p *tlsConn) Read(b []byte) (int, error) {
	if p.left == 0 { // type, version and length
		head, err := p.r.Peek(tlsRecordHeader)
		if err != nil && len(head) == 0 {
			return 0, err
		}
		if p.left = len(head); err == nil {
			p.left += int(binary.BigEndian.Uint16(head[3:]))
		}
	}
	n, err := p.r.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}
