package tcp

import (
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const closeGrace = 200 * time.Millisecond // a failing connection may still deliver why, so long

// member is what the ranks know of each other.
type member struct {
	Rank    int
	Host    string
	Machine string // what processes that can share memory have in common
	PID     int
	Addr    string // where the rank listens during rendezvous
	// ShmSocket is the socket at which the ranks of a host get this one's memory; NoShmReason says why there is none.
	ShmSocket, NoShmReason string
}

// String names the rank, and where it is if that is known.
func (m member) String() string {
	if m.Host == "" {
		return fmt.Sprintf("rank %d", m.Rank)
	}
	return fmt.Sprintf("rank %d (host %s)", m.Rank, m.where())
}

func (m member) where() string { return fmt.Sprintf("%s, pid %d", m.Host, m.PID) }

// link is the connection to one peer: one for control, and one for data in each direction. Over loopback these two move twice the bytes of
// one that is used both ways. Workers write their data themselves. What a reader has to say goes through post and is written to the control
// connection by a goroutine of its own: a reader that waited for a write could deadlock with its peer.
type link struct {
	e    *Engine
	peer member
	main *wire // for control
	out  *wire // for data to the peer
	in   *wire // for data from the peer

	cmu     sync.Mutex
	posts   []byte // posted frames
	closing bool
	posted  chan struct{}

	early        atomic.Int64  // bytes buffered for groups that are not opened here
	heard        atomic.Int64  // when the last frame came, in ns of the engine's clock
	goodbye      atomic.Bool   // the peer will begin nothing more
	open         atomic.Int32  // wires on which it has not said so, or ended
	closed       atomic.Bool   // there is none
	peerDone     chan struct{} // closed when the peer has read this rank's goodbyes, or is lost
	peerDoneOnce sync.Once
	cause        atomic.Pointer[error]    // why the connection was given up here
	rejectedWith atomic.Pointer[lostRank] // the peer's last word, when its rendezvous failed
	lostOnce     sync.Once
	lostErr      error       // it was lost; guarded by Engine.mu
	unusable     atomic.Bool // no longer usable
}

// newLink makes a link of one connection, which serves for data too.
func newLink(e *Engine, peer member, conn net.Conn) *link {
	l := &link{e: e, peer: peer, posted: make(chan struct{}, 1), peerDone: make(chan struct{})}
	l.main = newWire(l, conn)
	l.out, l.in = l.main, l.main
	l.open.Store(1)
	l.heard.Store(e.now())
	return l
}

// expect prepares for data connections of their own.
func (l *link) expect() {
	l.out, l.in = nil, nil
	l.open.Store(2)
}

// token is what only the two ends of the control connection know.
func (l *link) token() (string, error) {
	c, ok := l.main.conn.(*tls.Conn)
	if !ok {
		return "", errors.New("tcp: control connection without TLS")
	}
	state := c.ConnectionState()
	b, err := state.ExportKeyingMaterial("EXPORTER-ringo-data", nil, 32)
	return hex.EncodeToString(b), err
}

// complete reports whether all connections are there.
func (l *link) complete() bool {
	l.cmu.Lock()
	defer l.cmu.Unlock()
	return l.out != nil && l.in != nil
}

// start begins to read and to write posted frames.
func (l *link) start() {
	l.e.wg.Add(2)
	go l.readLoop(l.main)
	go l.postLoop()
}

var errClosing = errors.New("tcp: the link is closing")

// attach adds a data connection. It returns errClosing when the link was found lost meanwhile. A peer that has
// ended its part and left is not lost: nothing more is sent to it.
func (l *link) attach(w *wire, out bool) error {
	l.cmu.Lock()
	defer l.cmu.Unlock()
	at := &l.in
	if out {
		at = &l.out
	}
	closed := l.closing && out && l.closed.Load()
	switch {
	case l.closing && !closed:
		return errClosing
	case *at != nil:
		return fmt.Errorf("tcp: %v made a data connection twice", l.peer)
	}
	*at = w
	if closed {
		w.raw.Close()
	}
	if !out {
		l.e.wg.Add(1)
		go l.readLoop(w)
	}
	return nil
}

// post hands a frame to the connection's own goroutine and returns at once.
func (l *link) post(h *header, payload []byte) {
	h.length = uint64(len(payload))
	l.cmu.Lock()
	if !l.closing {
		at := len(l.posts)
		l.posts = append(l.posts, make([]byte, headerBytes)...)
		h.put(l.posts[at:])
		l.posts = append(l.posts, payload...)
	}
	l.cmu.Unlock()
	l.signalPosted()
}

func (l *link) signalPosted() {
	select {
	case l.posted <- struct{}{}:
	default:
	}
}

// postLoop writes posted frames until the link closes, then closes the connections.
func (l *link) postLoop() {
	defer l.e.wg.Done()
	defer l.each(func(w *wire) { w.raw.Close() })
	var out []byte
	for range l.posted {
		l.cmu.Lock()
		out, l.posts = l.posts, out[:0]
		closing := l.closing
		l.cmu.Unlock()
		if len(out) > 0 {
			if err := l.main.writePosted(out); err != nil {
				l.failed(err)
			}
		}
		if closing {
			return
		}
	}
}

// each calls fn, which does not wait, for every connection.
func (l *link) each(fn func(w *wire)) {
	l.cmu.Lock()
	defer l.cmu.Unlock()
	fn(l.main)
	for _, w := range [...]*wire{l.out, l.in} {
		if w != nil && w != l.main {
			fn(w)
		}
	}
}

// close closes the link after what was posted is written, or after closeGrace.
func (l *link) close() {
	l.unusable.Store(true)
	l.cmu.Lock()
	l.closing = true
	l.cmu.Unlock()
	l.each(func(w *wire) { w.raw.SetWriteDeadline(time.Now().Add(closeGrace)) })
	l.signalPosted()
}

// failed handles a write that failed, or the end of a data connection. The readers get some time to find the reason: the
// peer's last frames say more than "broken pipe".
func (l *link) failed(err error) {
	l.cause.CompareAndSwap(nil, &err)
	l.each(func(w *wire) { w.raw.SetReadDeadline(time.Now().Add(closeGrace)) })
}

// readLoop dispatches the frames of the peer until the connection ends.
func (l *link) readLoop(w *wire) {
	defer l.e.wg.Done()
	if w == l.main {
		defer l.setPeerDone()
	}
	err := l.readFrames(w)
	if l.goodbye.Load() {
		if l.wireDone(w); l.closed.Load() {
			l.close()
		}
		return
	}
	if w != l.main && ended(err) {
		l.failed(err)
		return
	}
	if c := l.cause.Load(); c != nil {
		err = *c
	}
	l.e.lost(l, readError(err))
	l.setPeerDone()
}

// wireDone notes that the peer will write nothing more on w.
func (l *link) wireDone(w *wire) {
	l.goodbye.Store(true)
	if w.done {
		return
	}
	w.done = true
	if l.open.Add(-1) == 0 {
		l.e.peerLeft(l)
	}
}

// ended reports whether err is the end of a connection, rather than something that came through it.
func ended(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// setPeerDone ends the wait for the peer when this rank says goodbye.
func (l *link) setPeerDone() { l.peerDoneOnce.Do(func() { close(l.peerDone) }) }

// readError says in plain words how a connection ended.
func readError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "local error" {
		return fmt.Errorf("sent what was not meant to be: %w", err)
	}
	if ended(err) {
		return fmt.Errorf("closed the connection (%w)", err)
	}
	return err
}

func (l *link) readFrames(w *wire) error {
	var h header
	for {
		if err := w.header(&h); err != nil {
			return err
		}
		l.heard.Store(l.e.now())
		if err := l.e.dispatch(w, &h); err != nil {
			return err
		}
	}
}

// sayGoodbye ends the peer's interest in this rank, on every connection that carries frames to it.
func (l *link) sayGoodbye() {
	h := header{typ: frameGoodbye, gen: l.e.cfg.Gen}
	l.post(&h, nil)
	if w := l.out; w != nil && w != l.main {
		l.e.wg.Go(func() { // the worker of a failed group may still be writing
			if err := w.write(&h, nil); err != nil {
				l.failed(err)
			}
		})
	}
}
