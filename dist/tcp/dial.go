package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/internal/acceptor"
	"github.com/ringo-ml/ringo/internal/identity"
)

var errMisrouted = errors.New("the connection was redirected")

// fullTime is how long a rank tries again that has no descriptors left for a connection: then it says so itself, before the others only
// miss it.
const fullTime = 2 * time.Second

// dial connects to rank `to` and says hello. It tries again until it is welcome, ctx ends, or another try cannot help. All
// ranks hold the same key. So somebody in the network could redirect this connection to another rank. The Welcome, which nobody
// else can change, says which rank has answered.
func dial(ctx context.Context, conf *tls.Config, addr string, to member, me hello) (*tls.Conn, member, error) {
	wait, full := 10*time.Millisecond, time.Time{}
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
		if !errors.Is(err, syscall.EMFILE) {
			full = time.Time{}
		} else if full.IsZero() {
			full = time.Now()
		} else if time.Since(full) > fullTime {
			return nil, m, fmt.Errorf("tcp: rank %d cannot reach %v at %s: %w", me.Rank, to, addr, err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			err = explainUnreached(err, me.member, to, addr)
			return nil, m, fmt.Errorf("tcp: %w: rank %d cannot reach %v at %s: %w", context.Cause(ctx), me.Rank, to, addr, err)
		case <-t.C:
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

func dialOnce(ctx context.Context, conf *tls.Config, addr string, me hello) (*tls.Conn, member, error) {
	var welcome hello
	d := net.Dialer{Timeout: acceptor.HandshakeTime}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, member{}, err
	}
	me.Addr = reachable(me.Addr, raw.LocalAddr())
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(acceptor.HandshakeTime))
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
