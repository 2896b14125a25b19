//go:build linux || darwin

package launch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/acceptor"
	"github.com/ringo-ml/ringo/internal/holder"
	"github.com/ringo-ml/ringo/internal/identity"
)

// agentProtocol is the TLS application protocol. It changes with the notes.
const agentProtocol = "ringo-agent/1"

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

// acceptNodes accepts the connections of other nodes at the rendezvous address. enter is called with each node that has said hello.
func acceptNodes(c *Config, conf *tls.Config, enter func(*node)) (*acceptor.Acceptor, error) {
	l, err := listen(c.Rendezvous)
	if err != nil {
		return nil, err
	}
	return acceptor.New(l, acceptor.Config{TLS: conf, Where: "at the rendezvous of the nodes", Log: slog.Default(),
		Files: "one for each node, and some more for each rank of this node",
		Hello: func(conn *tls.Conn) (func(), error) {
			w := newWire(conn, c.lostAfter())
			n, err := w.read()
			if err == nil && n.Hello == nil {
				err = errors.New("said no hello")
			}
			if err != nil {
				w.finish()
				return nil, err
			}
			return func() { go enter(&node{hello: *n.Hello, wire: w}) }, nil // as long as the node is there
		}}), nil
}

// listen listens at the rendezvous address. Other hosts may reach this one by an address that it does not know itself, or by a
// name that it cannot resolve yet, as in a cluster of containers. Then it listens on all addresses.
func listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("launch: rendezvous address: %w", err)
	}
	l, err := holder.Listen(addr)
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
	return l, nil
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
	d := net.Dialer{Timeout: acceptor.HandshakeTime}
	raw, err := d.DialContext(ctx, "tcp", c.Rendezvous)
	if err != nil {
		return nil, "", err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	_ = raw.SetDeadline(time.Now().Add(acceptor.HandshakeTime))
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
