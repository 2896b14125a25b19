package tcp

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	recordBytes = 16 << 10               // the payload of a TLS record
	lastWords   = 200 * time.Millisecond // a failing connection may still deliver why, so long
)

// member is what the ranks know of each other.
type member struct {
	Rank    int
	Host    string
	Machine string // what processes that can share memory have in common
	PID     int
	Addr    string // where the rank listens during rendezvous
}

func (m member) String() string { return fmt.Sprintf("rank %d (host %s)", m.Rank, m.where()) }

func (m member) where() string { return fmt.Sprintf("%s, pid %d", m.Host, m.PID) }

// link is the connection to one peer. Lanes write their data themselves, one at a time. What the reader has to say goes
// through post and is written by a goroutine of its own: a reader that waited for a write could deadlock with its peer.
type link struct {
	e    *Engine
	peer member
	conn net.Conn
	raw  net.Conn // below the TLS
	seal bool     // conn is not encrypted: frames are sealed

	wmu  turn
	wbuf []byte // header and head of a payload: one record
	sent uint32 // frames written, guarded by wmu
	body body   // of the frame that is being read

	cmu     sync.Mutex
	ctl     []byte // posted frames
	closing bool
	kick    chan struct{}

	heard   atomic.Int64  // when the last frame came, in ns of the engine's clock
	goodbye atomic.Bool   // the peer will send nothing more
	bye     chan struct{} // closed when the peer has read this rank's goodbye, or with the end of the reader
	byeOnce sync.Once
	cause   atomic.Pointer[error] // why the connection was given up here
	lostNow sync.Once
	down    atomic.Bool // no longer usable
}

// turn is a mutex whose holder may wait for the network: those behind it wait on a channel, which testing/synctest
// understands.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

func newLink(e *Engine, peer member, conn net.Conn) *link {
	l := &link{e: e, peer: peer, conn: conn, raw: conn, seal: true, wbuf: make([]byte, recordBytes), wmu: make(turn, 1),
		kick: make(chan struct{}, 1), bye: make(chan struct{})}
	if c, ok := conn.(*tls.Conn); ok {
		l.raw, l.seal = c.NetConn(), false
	}
	l.body.l = l
	l.heard.Store(e.now())
	return l
}

// start begins to read and to write posted frames.
func (l *link) start() {
	l.e.wg.Add(2)
	go l.readLoop()
	go l.postLoop()
}

// write sends a frame; it blocks while the peer does not read. busy, where given, shows meanwhile on which link.
func (l *link) write(h *header, payload []byte, busy *atomic.Pointer[link]) error {
	if busy != nil {
		busy.Store(l)
		defer busy.Store(nil)
	}
	l.wmu.Lock()
	defer l.wmu.Unlock()
	h.put(l.wbuf)
	if l.seal {
		l.sent = seal(l.wbuf, l.sent, payload)
	}
	n := copy(l.wbuf[headerBytes:], payload)
	_, err := l.conn.Write(l.wbuf[:headerBytes+n])
	if err == nil && n < len(payload) {
		_, err = l.conn.Write(payload[n:])
	}
	return err
}

// post hands a frame to the connection's own goroutine and returns at once.
func (l *link) post(h *header, payload []byte) {
	h.length = uint64(len(payload))
	l.cmu.Lock()
	if !l.closing {
		at := len(l.ctl)
		l.ctl = append(l.ctl, make([]byte, headerBytes)...)
		h.put(l.ctl[at:])
		l.ctl = append(l.ctl, payload...)
	}
	l.cmu.Unlock()
	l.nudge()
}

func (l *link) nudge() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// postLoop writes posted frames until the link closes, then closes the connection.
func (l *link) postLoop() {
	defer l.e.wg.Done()
	defer l.raw.Close()
	var out []byte
	for range l.kick {
		l.cmu.Lock()
		out, l.ctl = l.ctl, out[:0]
		closing := l.closing
		l.cmu.Unlock()
		if len(out) > 0 {
			if err := l.writePosted(out); err != nil {
				l.writeFailed(err)
			}
		}
		if closing {
			return
		}
	}
}

// writePosted writes frames that were posted.
func (l *link) writePosted(frames []byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	for b := frames; l.seal && len(b) > 0; {
		end := headerBytes + binary.LittleEndian.Uint32(b[16:])
		l.sent = seal(b, l.sent, b[headerBytes:end])
		b = b[end:]
	}
	_, err := l.conn.Write(frames)
	return err
}

// shut closes the link after what was posted is written, or after lastWords.
func (l *link) shut() {
	l.down.Store(true)
	l.cmu.Lock()
	l.closing = true
	l.cmu.Unlock()
	l.raw.SetWriteDeadline(time.Now().Add(lastWords))
	l.nudge()
}

// writeFailed gives the reader a moment to find out why: the peer's last frames say more than a broken pipe.
func (l *link) writeFailed(err error) {
	l.cause.CompareAndSwap(nil, &err)
	l.raw.SetReadDeadline(time.Now().Add(lastWords))
}

// readLoop dispatches the frames of the peer until the connection ends.
func (l *link) readLoop() {
	defer l.e.wg.Done()
	defer l.parted() // after lost: who waits for the end finds it noticed
	err := l.readFrames()
	if l.goodbye.Load() {
		l.shut()
		l.e.departed(l)
		return
	}
	if c := l.cause.Load(); c != nil {
		err = *c
	}
	l.e.lost(l, readError(err))
}

func (l *link) parted() { l.byeOnce.Do(func() { close(l.bye) }) }

// readError says in plain words how a connection ended.
func readError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "local error" {
		return fmt.Errorf("sent what was not meant to be: %w", err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) {
		return fmt.Errorf("closed the connection (%w)", err)
	}
	return err
}

func (l *link) readFrames() error {
	head, block := make([]byte, headerBytes), make([]byte, copyBlock)
	var h header
	var number uint32
	for {
		if _, err := io.ReadFull(l.conn, head); err != nil {
			return err
		}
		if err := h.parse(head, number); err != nil {
			return fmt.Errorf("broke the protocol: %w", err)
		}
		if l.seal && h.typ < frameHello {
			number++
		}
		l.body.begin(&h)
		l.heard.Store(l.e.now())
		if err := l.e.dispatch(l, &h, block); err != nil {
			return err
		}
	}
}

// payload reads the payload of a control frame.
func (l *link) payload(h *header) ([]byte, error) {
	b := make([]byte, h.length)
	if _, err := io.ReadFull(&l.body, b); err != nil {
		return nil, err
	}
	return b, l.body.check()
}

// body reads the payload of a frame.
type body struct {
	l         *link
	want, got uint32 // checksums
}

func (b *body) begin(h *header) { b.want, b.got = h.sum, 0 }

func (b *body) Read(p []byte) (int, error) {
	n, err := b.l.conn.Read(p)
	if b.l.seal {
		b.got = crc32.Update(b.got, castagnoli, p[:n])
	}
	return n, err
}

// check is called when all was read, before anyone relies on it.
func (b *body) check() error {
	if b.got != b.want {
		return fmt.Errorf("broke the protocol: payload has checksum %08x, want %08x: bytes were changed", b.got, b.want)
	}
	return nil
}

// sayGoodbye ends the peer's interest in this rank.
func (l *link) sayGoodbye() {
	l.post(&header{typ: frameGoodbye, gen: l.e.cfg.Gen}, nil)
}
