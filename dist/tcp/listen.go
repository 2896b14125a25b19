package tcp

import (
	"fmt"
	"net"
	"strconv"

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
		local, err := towards(c.Addr)
		if err != nil {
			return fmt.Errorf("tcp: rank %d finds no interface towards rank 0 at %s: %w", c.Rank, c.Addr, err)
		}
		c.Bind = local
	}
	return nil
}

// towards returns the address that this host has on the way to addr. Connecting a UDP socket sends nothing: the system only
// looks the route up.
func towards(addr string) (string, error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}

// listen opens this rank's port.
func (m *meeting) listen() (net.Listener, error) {
	c := &m.e.cfg
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
	if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() && net.ParseIP(c.Bind).IsLoopback() {
		return nil, fmt.Errorf("tcp: rank 0 is to be reached at %s, but listens on %s only: set RINGO_BIND", c.Addr, c.Bind)
	}
	l, err := holder.Listen(net.JoinHostPort(c.Bind, port))
	if err != nil {
		return nil, fmt.Errorf("tcp: rank 0: %w", err)
	}
	return l, nil
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
