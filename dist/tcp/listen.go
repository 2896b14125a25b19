package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/ringo-ml/ringo/internal/holder"
)

// bind settles which address this rank listens on.
func (c *Config) bind() error {
	switch c.Bind {
	case "":
		c.Bind = "127.0.0.1"
		if host, _, err := net.SplitHostPort(c.Addr); err == nil && host == "::1" {
			c.Bind = host
		}
	case "auto":
		local, err := localAddrTo(c.Addr)
		if err != nil {
			return fmt.Errorf("tcp: rank %d finds no interface towards rank 0 at %s: %w", c.Rank, c.Addr, err)
		}
		c.Bind = local
	}
	return nil
}

// localAddrTo returns the address that this host has on the way to addr. Connecting a UDP socket sends nothing: the system only
// looks the route up.
func localAddrTo(addr string) (string, error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}

// listen opens this rank's port.
func (rv *rendezvous) listen(ctx context.Context) (net.Listener, error) {
	c := &rv.e.cfg
	if c.Listener != nil {
		return c.Listener, nil
	}
	if c.Rank != 0 {
		return c.listenAny()
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(c.Bind).IsLoopback() && c.isRemote(ctx, host) {
		return nil, fmt.Errorf("tcp: rank 0 is to be reached at %s, but listens on %s only: set RINGO_BIND", c.Addr, c.Bind)
	}
	l, err := holder.Listen(net.JoinHostPort(c.Bind, port))
	if err != nil {
		return nil, fmt.Errorf("tcp: rank 0: %w", err)
	}
	return l, nil
}

// isRemote reports whether a host, an address or a name, is reached otherwise than over loopback. A name that is not known here
// says nothing, nor does one that this host gives a loopback address, as Debian does with a host's own.
func (c *Config) isRemote(ctx context.Context, host string) bool {
	addrs := []string{host}
	if net.ParseIP(host) == nil {
		addrs, _ = c.lookup(ctx, host)
	}
	for _, a := range addrs {
		if ip := net.ParseIP(a); ip == nil || ip.IsLoopback() {
			return false
		}
	}
	return len(addrs) > 0
}

// isOwn reports whether an address means the host that asks, whichever it is.
func isOwn(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// explainMissing adds to the error of rank 0, for which others did not come, that ranks of other hosts cannot.
func (c *Config) explainMissing(err error) error {
	if c.Rank == 0 && net.ParseIP(c.Bind).IsLoopback() && !isOwn(c.Addr) {
		return fmt.Errorf("%w: rank 0 listens on %s only, though it is to be reached at %s: set RINGO_BIND on it if they are on other hosts",
			err, c.Bind, c.Addr)
	}
	return err
}

// explainUnreached adds to the error of a rank that dialed another what is not set there, most likely.
func explainUnreached(err error, me, to member, addr string) error {
	switch {
	case to.Machine != "" && to.Machine != me.Machine && isOwn(addr):
		return fmt.Errorf("%w: it listens for its own host only, which is another one: set RINGO_BIND=auto on it", err)
	case to.Rank == 0 && !isOwn(addr) && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: without RINGO_BIND=auto, rank 0 listens for its own host only", err)
	}
	return err
}

// listenAny takes a free port: any, or the first of the range, counted from a place that depends on the rank.
func (c *Config) listenAny() (l net.Listener, err error) {
	lo, n := c.Ports[0], c.Ports[1]-c.Ports[0]+1
	for i := range n {
		if l, err = net.Listen("tcp", net.JoinHostPort(c.Bind, strconv.Itoa(lo+(c.Rank-1+i)%n))); err == nil {
			return l, nil
		}
	}
	if lo > 0 {
		err = fmt.Errorf("no free port from %d to %d, widen RINGO_PORTS: %w", lo, c.Ports[1], err)
	}
	return nil, fmt.Errorf("tcp: rank %d: %w", c.Rank, err)
}
