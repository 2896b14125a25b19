package tcp

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/identity"
	"github.com/ringo-ml/ringo/internal/nofile"
)

const (
	handshakeTime = 5 * time.Second
	maxPending    = 64 // connections that have not shown who they are; one more, and the oldest must go
	maxLogged     = 64 // unauthenticated connections are logged once; so many are remembered
)

// hello is the payload of frameHello and frameWelcome.
type hello struct {
	member
	Size  int
	Gen   uint32
	Plain bool   // encryption is off
	Mesh  bool   // after the table: a connection between two ranks other than rank 0
	Data  int    // 1 and up: a data connection of a link that is there; the first ones are for data to the one who accepts
	Token string // of that link, which only its two ends know
}

// acceptor accepts connections during rendezvous. Unauthenticated connections cost a handshake and a line in the log; they get no byte of the
// job's, and the job waits on.
type acceptor struct {
	e         *Engine
	l         net.Listener
	tls       *tls.Config
	hello     func(h hello, c *tls.Conn) error // an error is the reason for a reject
	wg        sync.WaitGroup
	mu        sync.Mutex
	pending   []net.Conn // oldest first
	logged    map[string]bool
	closed    bool
	acceptErr error // why nobody can come in at the moment
}

func newAcceptor(e *Engine, l net.Listener, c *tls.Config, answer func(hello, *tls.Conn) error) *acceptor {
	a := &acceptor{e: e, l: l, tls: c, hello: answer, logged: map[string]bool{}}
	a.wg.Add(1)
	go a.accept()
	return a
}

func (a *acceptor) accept() {
	defer a.wg.Done()
	for {
		c, err := a.l.Accept()
		if err != nil {
			if a.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			a.acceptFailed(err)
			time.Sleep(10 * time.Millisecond) //sleep: out of descriptors, most likely; pending connections leave within their handshake time
			continue
		}
		a.acceptFailed(nil)
		if a.addPending(c) {
			go a.handshake(c)
		}
	}
}

// acceptFailed notes why nobody can come in, nil that somebody can, and logs the first reason.
func (a *acceptor) acceptFailed(err error) {
	err = nofile.Explain(err, filesFor(a.e.cfg.Size))
	a.mu.Lock()
	isNew := err != nil && !a.logged[err.Error()]
	if isNew {
		a.logged[err.Error()] = true
	}
	a.acceptErr = err
	a.mu.Unlock()
	if isNew {
		slog.Warn("no connection can be accepted while waiting for ranks", "rank", a.e.cfg.Rank, "reason", err.Error())
	}
}

// filesFor is how many descriptors a rank needs, in words.
func filesFor(size int) string {
	return fmt.Sprintf("about %d for the connections to the other ranks", (size-1)*(1+2*streams))
}

// failure returns why nobody can come in at the moment, nil if somebody can.
func (a *acceptor) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acceptErr
}

func (a *acceptor) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// addPending makes c a pending connection; the oldest guest goes when there are too many. Ranks dial again.
func (a *acceptor) addPending(c net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		c.Close()
		return false
	}
	if len(a.pending) == maxPending {
		a.pending[0].Close()
		a.pending = append(a.pending[:0], a.pending[1:]...)
	}
	a.pending = append(a.pending, c)
	a.wg.Add(1)
	return true
}

func (a *acceptor) removePending(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, g := range a.pending {
		if g == c {
			a.pending = append(a.pending[:i], a.pending[i+1:]...)
			return
		}
	}
}

func (a *acceptor) handshake(raw net.Conn) {
	defer a.wg.Done()
	raw.SetDeadline(time.Now().Add(handshakeTime))
	c := tls.Server(newTLSConn(raw), a.tls)
	err := c.Handshake()
	var h hello
	if err == nil {
		err = readJSON(c, frameHello, &h)
	}
	a.removePending(raw) // from here on close does not cut it off
	if err != nil {
		a.refuse(raw, err)
		raw.Close()
		return
	}
	if err := a.hello(h, c); err != nil {
		writeJSON(c, frameReject, a.e.cfg.Gen, err.Error())
		raw.Close()
	}
}

// refuse logs who was refused, once per address and reason.
func (a *acceptor) refuse(c net.Conn, err error) {
	host, _, splitErr := net.SplitHostPort(c.RemoteAddr().String())
	if splitErr != nil {
		host = c.RemoteAddr().String()
	}
	cut := errors.Is(err, net.ErrClosed) // by close, or by a newer pending connection
	var not tls.RecordHeaderError
	var timeout net.Error
	switch err = identity.Explain(err); {
	case identity.Refused(err):
	case errors.As(err, &not):
		err = errors.New("does not speak TLS")
	case errors.As(err, &timeout) && timeout.Timeout():
		err = errors.New("sent nothing for " + handshakeTime.String())
	case cut:
		err = fmt.Errorf("was one of more than %d that sent nothing", maxPending)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("hung up")
	}
	a.mu.Lock()
	name := host + " " + err.Error()
	known := a.logged[name] || len(a.logged) == maxLogged || a.closed && cut
	if !known {
		a.logged[name] = true
	}
	a.mu.Unlock()
	if !known {
		slog.Warn("refused a connection while waiting for ranks", "address", c.RemoteAddr().String(), "reason", err.Error())
	}
}

// close ends the door; those inside finish or are cut off.
func (a *acceptor) close() {
	a.mu.Lock()
	a.closed = true
	pending := append([]net.Conn(nil), a.pending...)
	a.mu.Unlock()
	a.l.Close()
	for _, g := range pending {
		g.Close()
	}
	a.wg.Wait()
}

// writeJSON sends a frame of the rendezvous.
func writeJSON(c net.Conn, typ frameType, gen uint32, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h := header{typ: typ, gen: gen, length: uint64(len(b))}
	out := make([]byte, headerBytes, headerBytes+len(b))
	h.put(out)
	_, err = c.Write(append(out, b...))
	return err
}

// rejected is the reason of a frameReject.
type rejected string

func (r rejected) Error() string { return string(r) }

// readJSON reads a frame of the rendezvous. A frameReject is an error of type rejected.
func readJSON(c net.Conn, typ frameType, v any) error {
	b := make([]byte, headerBytes)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	var h header
	if err := h.parse(b, 0); err != nil {
		return err
	}
	if h.typ != typ && h.typ != frameReject {
		return fmt.Errorf("frame of type %d during rendezvous, want %d", h.typ, typ)
	}
	b = make([]byte, h.length)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if h.typ == frameReject {
		var why string
		if err := json.Unmarshal(b, &why); err != nil {
			return err
		}
		return rejected(why)
	}
	return json.Unmarshal(b, v)
}

var errMisrouted = errors.New("the connection was redirected")

// dial connects to rank `to` and says hello, again and again until it is welcome, ctx ends or trying again is no use. All
// ranks hold the same key, so whoever carries the bytes could lead this rank to another than it dialed: the Welcome, which
// nobody can change, says who answered.
func dial(ctx context.Context, conf *tls.Config, addr string, to member, me hello) (*tls.Conn, member, error) {
	wait := 10 * time.Millisecond
	for {
		c, m, err := dialOnce(ctx, conf, addr, me)
		if err == nil && m.Rank != to.Rank {
			c.NetConn().Close()
			return nil, m, fmt.Errorf("tcp: rank %d dialed %v at %s, but %v answered: %w", me.Rank, to, addr, m, errMisrouted)
		}
		if err == nil {
			return c, m, nil
		}
		var no rejected
		if errors.As(err, &no) {
			return nil, m, err
		}
		if identity.Refused(err) {
			return nil, m, fmt.Errorf("tcp: %v at %s: %w", to, addr, err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			err = explainUnreached(nofile.Explain(err, filesFor(me.Size)), me.member, to, addr)
			return nil, m, fmt.Errorf("tcp: rank %d cannot reach %v at %s: %w", me.Rank, to, addr, err)
		case <-t.C:
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

func dialOnce(ctx context.Context, conf *tls.Config, addr string, me hello) (*tls.Conn, member, error) {
	var welcome hello
	d := net.Dialer{Timeout: handshakeTime}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, member{}, err
	}
	me.Addr = reachable(me.Addr, raw.LocalAddr())
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(handshakeTime))
	c := tls.Client(newTLSConn(raw), conf)
	err = c.Handshake()
	if err == nil {
		err = writeJSON(c, frameHello, me.Gen, me)
	}
	if err == nil {
		err = readJSON(c, frameWelcome, &welcome)
	}
	if err == nil && me.Data > 0 { // until this arrives the other side sends nothing
		err = writeJSON(c, frameWelcome, me.Gen, me.Data)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		raw.Close()
		return nil, member{}, identity.Explain(err)
	}
	return c, welcome.member, nil
}

func marshalTable(part []member) ([]byte, error) {
	b, err := json.Marshal(part)
	if err == nil && len(b) > maxPayload {
		err = fmt.Errorf("tcp: table of %d bytes, at most %d are allowed", len(b), maxPayload)
	}
	return b, err
}

// reason is the payload of a frameReject.
func reason(err error) []byte {
	s := err.Error()
	b, jerr := json.Marshal(s[:min(len(s), maxPayload/8)])
	if jerr != nil {
		b = []byte(`""`)
	}
	return b
}

// reachable replaces the host of listen, when it means all addresses, by the one that reached rank 0.
func reachable(listen string, local net.Addr) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return listen
	}
	host, _, err = net.SplitHostPort(local.String())
	if err != nil {
		return listen
	}
	return net.JoinHostPort(host, port)
}
