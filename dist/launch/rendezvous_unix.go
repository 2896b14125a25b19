//go:build linux || darwin

package launch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/holder"
	"github.com/ringo-ml/ringo/internal/identity"
	"github.com/ringo-ml/ringo/internal/nofile"
)

const (
	// agentProtocol is the TLS application protocol; it changes with the notes.
	agentProtocol = "ringo-agent/1"
	handshakeTime = 5 * time.Second
	maxGuests     = 64 // connections that have not shown who they are; one more, and the oldest must go
	maxStrangers  = 64 // strangers are logged once; so many are remembered
)

// agentTLS returns the TLS settings of the job's agents.
func agentTLS() (*tls.Config, error) {
	digits := os.Getenv("RINGO_JOB_SECRET")
	if digits == "" {
		return nil, errors.New("launch: RINGO_JOB_SECRET is not set: make one with `openssl rand -hex 32` and give the same to every node")
	}
	secret, err := identity.ParseSecret(digits)
	if err != nil {
		return nil, fmt.Errorf("launch: RINGO_JOB_SECRET: %w", err)
	}
	return identity.TLS(secret, os.Getenv("RINGO_JOB_ID"), agentProtocol)
}

// door is where the other nodes knock, as long as the job lasts.
type door struct {
	l        net.Listener
	conf     *tls.Config
	patience time.Duration
	enter    func(*node) // a node that has said hello

	mu     sync.Mutex
	guests []net.Conn // oldest first
	names  map[string]bool
}

// openDoor listens where the rendezvous address says. Other hosts may reach this one by an address that it does not know
// itself, or by a name that nobody has told it yet, as in a cluster of containers: then it listens on all addresses.
func openDoor(c *Config, conf *tls.Config, enter func(*node)) (*door, error) {
	host, port, err := net.SplitHostPort(c.Rendezvous)
	if err != nil {
		return nil, fmt.Errorf("launch: rendezvous address: %w", err)
	}
	l, err := holder.Listen(c.Rendezvous)
	_, unknown := errors.AsType[*net.DNSError](err)
	everywhere := unknown || errors.Is(err, syscall.EADDRNOTAVAIL)
	if err == nil && net.ParseIP(host) == nil && host != "localhost" && l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		everywhere = true // Debian gives a host's own name the address 127.0.1.1
		l.Close()
	}
	if everywhere {
		l, err = holder.Listen(net.JoinHostPort("", port))
	}
	if err != nil {
		return nil, fmt.Errorf("launch: node 0 cannot listen at the rendezvous address: %w", err)
	}
	d := &door{l: l, conf: conf, patience: c.lostAfter(), enter: enter, names: map[string]bool{}}
	go d.accept()
	return d, nil
}

func (d *door) accept() {
	for {
		conn, err := d.l.Accept()
		switch {
		case err == nil:
			d.let(conn)
			go d.meet(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			d.stranded(err)
			time.Sleep(10 * time.Millisecond) //sleep: out of descriptors, most likely; guests leave within their handshake time
		}
	}
}

// stranded logs, once, why no node can come in.
func (d *door) stranded(err error) {
	err = nofile.Explain(err, "one for each node, and some more for each rank of this node")
	d.mu.Lock()
	known := d.names[err.Error()]
	d.names[err.Error()] = true
	d.mu.Unlock()
	if !known {
		slog.Warn("no connection can be accepted at the rendezvous of the nodes", "reason", err.Error())
	}
}

// let makes conn a guest; the oldest guest goes when there are too many. Nodes dial again.
func (d *door) let(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.guests) == maxGuests {
		d.guests[0].Close()
		d.guests = append(d.guests[:0], d.guests[1:]...)
	}
	d.guests = append(d.guests, conn)
}

func (d *door) leave(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, g := range d.guests {
		if g == conn {
			d.guests = append(d.guests[:i], d.guests[i+1:]...)
			return
		}
	}
}

// meet learns who is there.
func (d *door) meet(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	c := tls.Server(conn, d.conf)
	err := c.Handshake()
	d.leave(conn)
	if err != nil {
		d.stranger(conn, err)
		conn.Close()
		return
	}
	w := newWire(c, d.patience)
	n, err := w.read()
	if err != nil || n.Hello == nil {
		w.finish()
		return
	}
	d.enter(&node{hello: *n.Hello, wire: w})
}

// stranger logs who was refused, once per address and reason.
func (d *door) stranger(conn net.Conn, err error) {
	host, _, splitErr := net.SplitHostPort(conn.RemoteAddr().String())
	if splitErr != nil {
		host = conn.RemoteAddr().String()
	}
	err = identity.Explain(err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case noTLS:
		err = errors.New("does not speak TLS")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errors.New("sent nothing for " + handshakeTime.String())
	case errors.Is(err, net.ErrClosed):
		err = fmt.Errorf("was one of more than %d that sent nothing", maxGuests)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		err = errors.New("hung up")
	}
	d.mu.Lock()
	name := host + " " + err.Error()
	known := d.names[name] || len(d.names) == maxStrangers
	if !known {
		d.names[name] = true
	}
	d.mu.Unlock()
	if !known {
		slog.Warn("refused a connection to the rendezvous of the nodes", "address", conn.RemoteAddr().String(), "reason", err.Error())
	}
}

// close ends the door; nobody else comes in.
func (d *door) close() {
	d.l.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		g.Close()
	}
}

// dial connects this node to the coordinator, again and again until it is welcome, ctx ends or trying again is no use. It
// also returns the address of the interface that routes there.
func dial(ctx context.Context, c *Config, me hello) (w *wire, local string, err error) {
	conf, err := agentTLS()
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.JoinTimeout)
	defer cancel()
	wait := 10 * time.Millisecond
	var before error
	for {
		w, local, err = dialOnce(ctx, c, conf, me)
		if err == nil {
			return w, local, nil
		}
		if no, ok := errors.AsType[refused](err); ok {
			return nil, "", fmt.Errorf("launch: node 0 at %s refuses node %d: %w", c.Rendezvous, me.Node, no)
		}
		if identity.Refused(err) {
			return nil, "", fmt.Errorf("launch: node %d and node 0 at %s: %w", me.Node, c.Rendezvous, err)
		}
		if ctx.Err() != nil && before != nil {
			err = before // this try was cut short: it says less
		}
		before = err
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, "", fmt.Errorf("launch: node %d cannot join within %v: node 0 at %s: %w", me.Node, c.JoinTimeout, c.Rendezvous, err)
		case <-t.C:
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

// refused is the coordinator's reason to turn a node away.
type refused string

// Error returns the reason.
func (r refused) Error() string { return string(r) }

func dialOnce(ctx context.Context, c *Config, conf *tls.Config, me hello) (*wire, string, error) {
	d := net.Dialer{Timeout: handshakeTime}
	raw, err := d.DialContext(ctx, "tcp", c.Rendezvous)
	if err != nil {
		return nil, "", err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	_ = raw.SetDeadline(time.Now().Add(handshakeTime))
	conn := tls.Client(raw, conf)
	if err := conn.Handshake(); err != nil {
		raw.Close()
		return nil, "", identity.Explain(err)
	}
	w := newWire(conn, c.lostAfter())
	w.send(note{Hello: &me})
	for {
		n, err := w.read()
		switch {
		case err == nil && n.Refuse != "":
			err = refused(n.Refuse)
		case err == nil && n.Welcome:
			local, _, err := net.SplitHostPort(raw.LocalAddr().String())
			return w, local, err
		case err == nil:
			continue
		}
		w.finish()
		return nil, "", identity.Explain(err)
	}
}
