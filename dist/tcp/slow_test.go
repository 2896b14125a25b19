package tcp_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/tensor"
)

// slowly passes connections on to addr, at most rate bytes a second in each direction, and returns where it listens.
func slowly(t *testing.T, addr string, rate int) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	pass := func(to, from net.Conn) {
		defer to.Close()
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := io.CopyN(to, from, int64(rate/250)); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			for _, c := range []net.Conn{near, far} { // what is on the way is in the proxy's hands, not in buffers
				_ = c.(*net.TCPConn).SetReadBuffer(256 << 10)
			}
			go pass(near, far)
			go pass(far, near)
		}
	}()
	return l.Addr().String()
}

// slowRanks runs fn on ranks that reach rank 0 over a slow line.
func slowRanks(t *testing.T, n, rate int, fn func(r *dist.Rank) error) error {
	return run(t, n, dist.Config{Threads: 1, Log: io.Discard}, nil, func(c *tcp.Config) {
		if c.Timeout, c.NoShared = 20*time.Second, true; c.Rank > 0 {
			c.Addr = slowly(t, c.Addr, rate)
		}
	}, fn)
}

// A transfer that takes longer than the timeout is no failure as long as bytes arrive, for those who only receive and for
// those who wait for their turn at the root too.
func TestSlowTransferIsNoFailure(t *testing.T) {
	const timeout, count = 500 * time.Millisecond, 2 << 20
	for name, op := range map[string]func(g *dist.Group, all, x tensor.Tensor) dist.Work{
		"broadcast": func(g *dist.Group, _, x tensor.Tensor) dist.Work { return g.Broadcast(x, 0) },
		"gather":    func(g *dist.Group, all, x tensor.Tensor) dist.Work { return g.Gather(all, x, 0) },
		"scatter":   func(g *dist.Group, all, x tensor.Tensor) dist.Work { return g.Scatter(x, all, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			require.NoError(t, slowRanks(t, 3, 2<<20, func(r *dist.Rank) error {
				all, x := tensor.New(r.Device, tensor.Uint8, 3*count), tensor.New(r.Device, tensor.Uint8, count)
				if err := r.World.Barrier().Wait(); err != nil {
					return err
				}
				return op(r.World.With(dist.Timeout(timeout)), all, x).Wait()
			}))
			require.Greater(t, time.Since(begin), 2*timeout, "the line was not slow")
		})
	}
}
