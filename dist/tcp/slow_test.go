package tcp_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/faultnet"
	"github.com/ringo-ml/ringo/tensor"
)

// slowConn is an end of a connection from which at most rate bytes a second are read.
type slowConn struct {
	net.Conn
	rate int
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), c.rate/250)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
	return n, err
}

// slowly connects ranks, those that are not rank 0 with it over a slow line. Little is on the way.
func slowly(rate int) func(low, high int) (net.Conn, net.Conn) {
	return func(low, _ int) (net.Conn, net.Conn) {
		plan := faultnet.Plan{Buffer: 64 << 10}
		a, b := faultnet.Pair(plan, plan)
		if low > 0 {
			return a, b
		}
		return slowConn{a, rate}, slowConn{b, rate}
	}
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
			synctest.Test(t, func(t *testing.T) {
				engines, err := tcp.Connected(3, 20*time.Second, tcp.Lines{Secret: make([]byte, tcp.SecretBytes), Data: true}, slowly(2<<20))
				require.NoError(t, err)
				begin := time.Now()
				require.NoError(t, runProcesses(dist.Config{Threads: 1, Log: io.Discard}, engines, func(r *dist.Rank) error {
					all, x := tensor.New(r.Device, tensor.Uint8, 3*count), tensor.New(r.Device, tensor.Uint8, count)
					disttest.OK(r.World.Barrier().Wait())
					return op(r.World.With(dist.Timeout(timeout)), all, x).Wait()
				}))
				require.Greater(t, time.Since(begin), 2*timeout, "the line was not slow")
			})
		})
	}
}

// Ranks that met long before the last one came owe signs of life only from then on.
func TestRanksComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = time.Second
		engines, err := tcp.Connected(3, silence, tcp.Lines{}, func(int, int) (net.Conn, net.Conn) {
			time.Sleep(10 * silence)
			return faultnet.Pair(faultnet.Plan{}, faultnet.Plan{})
		})
		require.NoError(t, err)
		require.NoError(t, runProcesses(dist.Config{Threads: 1, Log: io.Discard}, engines, func(r *dist.Rank) error {
			time.Sleep(10 * silence) // of virtual time: the ranks would find each other silent
			return r.World.Barrier().Wait()
		}))
	})
}
