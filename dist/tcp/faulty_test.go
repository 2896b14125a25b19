package tcp

import (
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

// Connected returns engines of n ranks that never met: each pair is connected by what wire returns. Where secret is given,
// the connections are encrypted.
func Connected(n int, timeout time.Duration, secret []byte, wire func(low, high int) (net.Conn, net.Conn)) ([]*Engine, error) {
	engines := make([]*Engine, n)
	for r := range engines {
		engines[r] = newEngine(Config{Rank: r, Size: n, Timeout: timeout}, who(r))
	}
	for high := range n {
		for low := range high {
			a, b := wire(low, high)
			if secret != nil {
				var err error
				if a, b, err = encrypted(a, b, secret); err != nil {
					return nil, err
				}
			}
			engines[low].links[high] = newLink(engines[low], who(high), a)
			engines[high].links[low] = newLink(engines[high], who(low), b)
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

// Each thing that can happen to a frame of an unencrypted connection ends the operation with an error that names a peer, on
// both ranks, within the time that a peer may be silent.
func TestFrameFaults(t *testing.T) {
	const timeout = 2 * time.Second
	for kind := range faultnet.Kind(faultnet.NumKinds) {
		for at := range 8 {
			t.Run(fmt.Sprint(kind, " ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					plan := faultnet.Plan{Seed: uint64(at), Fault: &faultnet.Fault{Kind: kind, At: at}}
					engines, err := Connected(2, timeout, nil, func(int, int) (net.Conn, net.Conn) {
						return faultnet.Pair(plan, faultnet.Plan{})
					})
					require.NoError(t, err)
					be := open(t, engines, "world")
					began := time.Now()
					errs := each(2, func(r int) error {
						x := make([]float32, 9000)
						for seq := range uint64(8) {
							op := sumOp(x)
							op.Seq = seq + 1
							if err := do(be[r], &op); err != nil {
								return err
							}
						}
						return nil
					})
					for r, err := range errs {
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
			synctest.Test(t, func(t *testing.T) {
				plan := faultnet.Plan{Seed: 1, Fault: &faultnet.Fault{Kind: kind, At: 6}} // behind the handshake
				engines, err := Connected(3, 2*time.Second, testSecret, func(low, high int) (net.Conn, net.Conn) {
					if low+high == 1 {
						return faultnet.Pair(plan, faultnet.Plan{})
					}
					return faultnet.Pair(faultnet.Plan{}, faultnet.Plan{})
				})
				require.NoError(t, err)
				be := open(t, engines, "world")
				errs := each(3, func(r int) error {
					x := make([]float32, 9000)
					for seq := range uint64(20) {
						op := sumOp(x)
						op.Seq = seq + 1
						if err := do(be[r], &op); err != nil {
							return err
						}
					}
					return nil
				})
				for r, err := range errs {
					assert.ErrorContains(t, err, "allreduce seq ", "rank %d", r)
					var e *backend.Error
					require.ErrorAs(t, err, &e)
					assert.Contains(t, []int{0, 1}, e.Rank, "rank %d: %v", r, err)
				}
				closeAll(engines)
			})
		})
	}
}
