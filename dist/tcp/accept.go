package tcp

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/ringo-ml/ringo/internal/acceptor"
)

// newAcceptor accepts connections during rendezvous. answer handles a hello: its error is the reason for a reject.
func (rv *rendezvous) newAcceptor(l net.Listener, answer func(h hello, c *tls.Conn) error) *acceptor.Acceptor {
	cfg := &rv.e.cfg
	return acceptor.New(l, acceptor.Config{TLS: rv.conf, Below: func(c net.Conn) net.Conn { return newTLSConn(c) },
		Where: "while waiting for ranks", Files: filesFor(cfg.Size), Log: slog.With("rank", cfg.Rank),
		Hello: func(c *tls.Conn) (enter func(), err error) {
			var h hello
			err = readJSON(c, frameHello, &h)
			return func() {
				if err := answer(h, c); err != nil {
					writeJSON(c, frameReject, cfg.Gen, err.Error())
					c.NetConn().Close()
				}
			}, err
		}})
}

// filesFor is how many descriptors a rank needs, in words.
func filesFor(size int) string {
	return fmt.Sprintf("about %d for the connections to the other ranks", 3*(size-1))
}
