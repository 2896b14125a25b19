package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/faultnet"
)

// Lines says how Connected connects two ranks.
type Lines struct {
	Secret []byte // the connections are encrypted; nil: they are not
	Data   bool   // there is a data connection each way, besides the one for control; they need a secret
	Plain  bool   // what the data connections carry is not encrypted all the same
}

// Connected returns engines of n ranks that never met: each pair is connected by what wire returns, one connection after
// the other.
func Connected(n int, timeout time.Duration, lines Lines, wire func(low, high int) (net.Conn, net.Conn)) ([]*Engine, error) {
	engines := make([]*Engine, n)
	for r := range engines {
		engines[r] = newEngine(Config{Rank: r, Size: n, Timeout: timeout, Plain: lines.Plain}, who(r))
	}
	for high := range n {
		for low := range high {
			if err := lines.connect(engines[low], engines[high], wire); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range engines {
		for _, l := range e.links {
			if l != nil {
				l.start()
			}
		}
		e.begin()
	}
	return engines, nil
}

func (lines *Lines) connect(a, b *Engine, wire func(low, high int) (net.Conn, net.Conn)) error {
	low, high := a.cfg.Rank, b.cfg.Rank
	to, from := wire(low, high)
	if lines.Secret == nil {
		a.links[high], b.links[low] = newLink(a, who(high), to), newLink(b, who(low), from)
		return nil
	}
	tlsTo, tlsFrom, err := encrypted(to, from, lines.Secret)
	if err != nil {
		return err
	}
	there, back := newLink(a, who(high), tlsTo), newLink(b, who(low), tlsFrom)
	a.links[high], b.links[low] = there, back
	if !lines.Data {
		return nil
	}
	there.expect()
	back.expect()
	for k := range 2 {
		to, from := wire(low, high)
		tlsTo, tlsFrom, err := encrypted(newTLSConn(to), newTLSConn(from), lines.Secret)
		if err == nil {
			err = errors.Join(lines.attach(there, tlsTo, k == 0), lines.attach(back, tlsFrom, k == 1))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (lines *Lines) attach(l *link, c *tls.Conn, out bool) error {
	w, err := newDataWire(l, c, lines.Plain)
	if err != nil {
		return err
	}
	return l.attach(w, out)
}

func who(rank int) member {
	return member{Rank: rank, Host: fmt.Sprint("h", rank), Machine: "one", PID: 100 + rank}
}

func encrypted(a, b net.Conn, secret []byte) (*tls.Conn, *tls.Conn, error) {
	conf, err := tlsConfig(secret, "test")
	if err != nil {
		return nil, nil, err
	}
	server, client := tls.Server(a, conf), tls.Client(b, conf)
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = server.Handshake() })
	wg.Go(func() { errs[1] = client.Handshake() })
	wg.Wait()
	return server, client, errors.Join(errs[:]...)
}

// started holds a fault back until all ranks but the writer have issued something: errors can then name an operation.
type started struct{ sync.WaitGroup }

// sums runs all-reduces on a rank until one fails.
func (s *started) sums(be backend.Backend, writer bool, n uint64) error {
	x := make([]float32, 9000)
	for seq := range n {
		op := sumOp(x)
		op.Seq = seq + 1
		err := be.Issue(&op)
		if seq == 0 && !writer {
			s.Done()
		}
		if err == nil {
			err = wait(context.Background(), be, op.Seq)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Each thing that can happen to a frame of an unencrypted connection ends the operation with an error that names a peer, on
// both ranks, within the time that a peer may be silent.
func TestFrameFaults(t *testing.T) {
	const timeout = 2 * time.Second
	for kind := range faultnet.Kind(faultnet.NumKinds) {
		for at := range 8 {
			t.Run(fmt.Sprint(kind, " ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var all started
					all.Add(1)
					plan := faultnet.Plan{Seed: uint64(at), Fault: &faultnet.Fault{Kind: kind, At: at}, Hit: all.Wait}
					engines, err := Connected(2, timeout, Lines{}, func(int, int) (net.Conn, net.Conn) {
						return faultnet.Pair(plan, faultnet.Plan{})
					})
					require.NoError(t, err)
					be := open(t, engines, "world")
					began := time.Now()
					for r, err := range each(2, func(r int) error { return all.sums(be[r], r == 0, 8) }) {
						assert.ErrorContains(t, err, "allreduce seq ", "rank %d", r)
						assert.ErrorContains(t, err, "rank ", "rank %d", r)
					}
					assert.LessOrEqual(t, time.Since(began), 2*timeout)
					closeAll(engines)
				})
			})
		}
	}
}

// The same below TLS: what was changed, lost or moved on the way is noticed by TLS.
func TestFaultsBelowTLS(t *testing.T) {
	for kind := range faultnet.Kind(faultnet.NumKinds) {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { faultBelow(t, kind, false) })
		})
	}
}

// The same where frames are encrypted, on a data connection. No sign of life follows there: what is lost without a trace is left
// to the timeout of the operation.
func TestFaultsBelowBoxes(t *testing.T) {
	for _, kind := range []faultnet.Kind{faultnet.Duplicate, faultnet.Corrupt, faultnet.Cut} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { faultBelow(t, kind, true) })
		})
	}
}

func faultBelow(t *testing.T, kind faultnet.Kind, data bool) {
	var all started
	all.Add(2)
	var hit bool
	plan := faultnet.Plan{Seed: 1, Fault: &faultnet.Fault{Kind: kind, At: 6}, Hit: func() { hit = true; all.Wait() }} // behind the handshake
	// the connection that carries rank 0's data
	made, faulty := 0, 1
	if data {
		faulty = 2
	}
	engines, err := Connected(3, 2*time.Second, Lines{Secret: testSecret, Data: data}, func(low, high int) (net.Conn, net.Conn) {
		if low+high == 1 {
			if made++; made == faulty {
				return faultnet.Pair(plan, faultnet.Plan{})
			}
		}
		return faultnet.Pair(faultnet.Plan{}, faultnet.Plan{})
	})
	require.NoError(t, err)
	be := open(t, engines, "world")
	for r, err := range each(3, func(r int) error { return all.sums(be[r], r == 0, 20) }) {
		assert.ErrorContains(t, err, "allreduce seq ", "rank %d", r)
		var e *backend.Error
		require.ErrorAs(t, err, &e)
		assert.Contains(t, []int{0, 1}, e.Rank, "rank %d: %v", r, err)
	}
	assert.True(t, hit)
	closeAll(engines)
}
