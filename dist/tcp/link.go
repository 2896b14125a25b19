package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
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
	conn *tls.Conn
	raw  net.Conn // below the TLS

	wmu  sync.Mutex
	wbuf []byte // header and head of a payload: one record

	cmu     sync.Mutex
	ctl     []byte // posted frames
	closing bool
	kick    chan struct{}

	heard   atomic.Int64  // when the last frame came, in ns of the engine's clock
	goodbye atomic.Bool   // the peer will send nothing more
	bye     chan struct{} // closed with goodbye, or with the end of the reader
	byeOnce sync.Once
	cause   atomic.Pointer[error] // why the connection was given up here
	lostNow sync.Once
	why     error       // it was lost; guarded by Engine.mu
	down    atomic.Bool // no longer usable
}

func newLink(e *Engine, peer member, conn *tls.Conn) *link {
	l := &link{e: e, peer: peer, conn: conn, raw: conn.NetConn(), wbuf: make([]byte, recordBytes),
		kick: make(chan struct{}, 1), bye: make(chan struct{})}
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
			l.wmu.Lock()
			_, err := l.conn.Write(out)
			l.wmu.Unlock()
			if err != nil {
				l.writeFailed(err)
			}
		}
		if closing {
			return
		}
	}
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
	defer l.byeOnce.Do(func() { close(l.bye) }) // after lost: who waits for the end finds it noticed
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

// readError says in plain words how a connection ended.
func readError(err error) error {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) {
		return fmt.Errorf("closed the connection (%w)", err)
	}
	return err
}

func (l *link) readFrames() error {
	head, block := make([]byte, headerBytes), make([]byte, copyBlock)
	var h header
	for {
		if _, err := io.ReadFull(l.conn, head); err != nil {
			return err
		}
		if err := h.parse(head); err != nil {
			return fmt.Errorf("broke the protocol: %w", err)
		}
		l.heard.Store(l.e.now())
		if err := l.e.dispatch(l, &h, block); err != nil {
			return err
		}
	}
}

// payload reads the payload of a control frame.
func (l *link) payload(h *header) ([]byte, error) {
	b := make([]byte, h.length)
	_, err := io.ReadFull(l.conn, b)
	return b, err
}

// sayGoodbye ends the peer's interest in this rank.
func (l *link) sayGoodbye() {
	l.post(&header{typ: frameGoodbye, gen: l.e.cfg.Gen}, nil)
}
