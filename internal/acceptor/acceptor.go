package acceptor

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/identity"
	"github.com/ringo-ml/ringo/internal/nofile"
)

const (
	// HandshakeTime is how long a connection may take to prove that it belongs to the job.
	HandshakeTime = 5 * time.Second
	// MaxPending is how many connections may be unauthenticated at the same time. If there is one more, the oldest is closed.
	MaxPending = 64
	maxLogged  = 64 // how many refusals are remembered, to log each one once
)

// Config says what an Acceptor does with connections.
type Config struct {
	TLS *tls.Config
	// Below wraps the connection that TLS runs over; nil leaves it as it is.
	Below func(c net.Conn) net.Conn
	// Hello reads who has connected. It returns a function that uses the connection, or the reason to refuse it. Its read has the
	// deadline of the handshake.
	Hello func(c *tls.Conn) (enter func(), err error)
	// Where is the end of what is logged, such as "while waiting for ranks".
	Where string
	// Files says how many descriptors are needed. It is for the error when there are none left.
	Files string
	// Log receives warnings.
	Log *slog.Logger
}

// Acceptor accepts connections until it is closed.
type Acceptor struct {
	l  net.Listener
	c  Config
	wg sync.WaitGroup

	mu      sync.Mutex
	pending []net.Conn // unauthenticated, the oldest first
	logged  map[string]bool
	closed  bool
	err     error
}

// New accepts connections of l. Close closes l.
func New(l net.Listener, c Config) *Acceptor {
	a := &Acceptor{l: l, c: c, logged: map[string]bool{}}
	a.wg.Add(1)
	go a.accept()
	return a
}

// Addr returns the address that it listens on.
func (a *Acceptor) Addr() net.Addr { return a.l.Addr() }

// Err returns why no connection can be accepted at the moment; nil if one can.
func (a *Acceptor) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Close closes the listener and the unauthenticated connections. It waits for the functions of Hello that have begun.
func (a *Acceptor) Close() {
	a.mu.Lock()
	a.closed = true
	for _, c := range a.pending {
		c.Close()
	}
	a.mu.Unlock()
	a.l.Close()
	a.wg.Wait()
}

func (a *Acceptor) accept() {
	defer a.wg.Done()
	for {
		c, err := a.l.Accept()
		if errors.Is(err, net.ErrClosed) || a.setErr(nofile.Explain(err, a.c.Files)) && err != nil {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) //sleep: out of descriptors, most likely; pending connections end within HandshakeTime
		} else if a.add(c) {
			go a.handshake(c)
		}
	}
}

// setErr sets why no connection can be accepted, and logs each reason once. It reports whether the Acceptor is closed.
func (a *Acceptor) setErr(err error) (closed bool) {
	a.mu.Lock()
	a.err = err
	closed = a.closed
	isNew := err != nil && !closed && a.isNew(err.Error())
	a.mu.Unlock()
	if isNew {
		a.c.Log.Warn("no connection can be accepted "+a.c.Where, "reason", err.Error())
	}
	return closed
}

// isNew reports whether a line must be logged. a.mu is held.
func (a *Acceptor) isNew(line string) bool {
	if a.logged[line] || len(a.logged) == maxLogged {
		return false
	}
	a.logged[line] = true
	return true
}

// add makes c a pending connection. If there are too many, it closes the oldest one; a member of the job dials again.
func (a *Acceptor) add(c net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		c.Close()
		return false
	}
	if len(a.pending) == MaxPending {
		a.pending[0].Close()
		a.pending = slices.Delete(a.pending, 0, 1)
	}
	a.pending = append(a.pending, c)
	a.wg.Add(1)
	return true
}

func (a *Acceptor) remove(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.pending, c); i >= 0 {
		a.pending = slices.Delete(a.pending, i, i+1)
	}
}

// handshake authenticates a connection and calls the function of Hello with it. From then on, Close does not close it.
func (a *Acceptor) handshake(raw net.Conn) {
	defer a.wg.Done()
	raw.SetDeadline(time.Now().Add(HandshakeTime))
	below := raw
	if a.c.Below != nil {
		below = a.c.Below(raw)
	}
	c := tls.Server(below, a.c.TLS)
	var enter func()
	err := c.Handshake()
	if err == nil {
		enter, err = a.c.Hello(c)
	}
	a.remove(raw)
	if err != nil {
		a.refuse(raw, err)
		return
	}
	enter()
}

// refuse closes a connection and logs why, once for each address and reason.
func (a *Acceptor) refuse(c net.Conn, err error) {
	defer c.Close()
	host, _, splitErr := net.SplitHostPort(c.RemoteAddr().String())
	if splitErr != nil {
		host = c.RemoteAddr().String()
	}
	why := reason(err).Error()
	a.mu.Lock()
	endedByClose := a.closed && errors.Is(err, net.ErrClosed)
	isNew := !endedByClose && a.isNew(host+" "+why)
	a.mu.Unlock()
	if isNew {
		a.c.Log.Warn("refused a connection "+a.c.Where, "address", c.RemoteAddr().String(), "reason", why)
	}
}

// reason returns an error that says in plain words why a handshake failed.
func reason(err error) error {
	explained := identity.Explain(err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case identity.Refused(explained):
	case noTLS:
		return errors.New("does not speak TLS")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("sent nothing for %v", HandshakeTime)
	case errors.Is(err, net.ErrClosed):
		return fmt.Errorf("was one of more than %d that sent nothing", MaxPending)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("hung up")
	}
	return explained
}
