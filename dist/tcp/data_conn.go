package tcp

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"fmt"
	"time"
)

// dialData makes the data connections of l: first the one for data to the peer, then the one for data from it. Names are those of the side
// that accepts: what is dataIn there goes out here.
func (rv *rendezvous) dialData(ctx context.Context, l *link, addr string) error {
	h := rv.hello(false)
	var err error
	if h.Token, err = l.token(); err != nil {
		return err
	}
	for _, h.Data = range [...]int{dataIn, dataOut} {
		c, _, err := dial(ctx, rv.conf, addr, l.peer, h)
		if err != nil {
			return err
		}
		if err := rv.attach(l, c, h.Data == dataIn); err != nil {
			return err
		}
	}
	return nil
}

// attach adds a data connection to l.
func (rv *rendezvous) attach(l *link, c *tls.Conn, out bool) error {
	w, err := newDataWire(l, c, rv.e.cfg.Plain)
	if err == nil {
		err = l.attach(w, out)
	}
	if err != nil {
		c.NetConn().Close()
		return err
	}
	rv.signal()
	return nil
}

// acceptData is the answer to the hello of a data connection. The token proves that it comes from the process at the other
// end of the link.
func (rv *rendezvous) acceptData(h hello, c *tls.Conn) error {
	rv.mu.Lock()
	var l *link
	if h.Rank >= 0 && h.Rank < len(rv.e.links) && h.Data <= dataOut {
		l = rv.e.links[h.Rank]
	}
	rv.mu.Unlock()
	if l == nil {
		return fmt.Errorf("tcp: %v expects no data connection from %v", rv.e.self, h.member)
	}
	token, err := l.token()
	if err != nil {
		return err
	}
	if !hmac.Equal([]byte(token), []byte(h.Token)) {
		return fmt.Errorf("tcp: data connection of %v does not belong to the one that is there", h.member)
	}
	err = writeJSON(c, frameWelcome, rv.e.cfg.Gen, rv.hello(false))
	var ready int
	if err == nil {
		err = readJSON(c, frameWelcome, &ready)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.NetConn().Close()
		return nil // the dialer finds out, and dials again
	}
	return rv.attach(l, c, h.Data == dataOut)
}
