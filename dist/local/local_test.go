package local_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func start(_ *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	cfg.Ranks = n
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

func TestConformance(t *testing.T) {
	t.Parallel()
	disttest.Run(t, start)
}

func TestLongConformance(t *testing.T) { reliability.AsLong(t, TestConformance) }

func TestGroupsComeAndGo(t *testing.T) { disttest.GroupsComeAndGo(t, start) }

func TestLongGroupsComeAndGo(t *testing.T) { reliability.AsLong(t, TestGroupsComeAndGo) }

// enginesOf returns the engines of the n ranks of a hub.
func enginesOf(hub *local.Hub, n int) []backend.Engine {
	engines := make([]backend.Engine, n)
	for i := range engines {
		engines[i] = hub.Engine(i)
	}
	return engines
}

// onHub runs fn on the engines of a hub.
func onHub(hub *local.Hub, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return dist.RunEngines(context.Background(), cfg, enginesOf(hub, n), func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

func TestFaults(t *testing.T) {
	t.Parallel()
	disttest.RunFaults(t, func(f disttest.Fault) disttest.Start {
		return func(_ *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
			hub := local.NewHub(n)
			hub.SetFault(local.Fault(f))
			return onHub(hub, n, cfg, fn)
		}
	})
}

// A rank sleeps one virtual hour. The timeout of the others names it, at once in real time: waiting goroutines park on channels, and the
// clock of the bubble jumps.
func TestTimeoutInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs [3]error
		err := start(t, 3, dist.Config{Threads: 1, Log: io.Discard}, func(r *dist.Rank) error {
			begin := time.Now()
			if r.World.Rank() == 2 {
				time.Sleep(time.Hour)
			}
			errs[r.World.Rank()] = r.World.Barrier().Wait()
			if took := time.Since(begin); r.World.Rank() < 2 && took != dist.DefaultTimeout {
				return fmt.Errorf("rank %d waited %v", r.World.Rank(), took)
			}
			return nil
		})
		require.NoError(t, err)
		for rank, err := range errs {
			require.ErrorContains(t, err, "barrier seq 1 of group world: rank 2 did not arrive within 5m0s", "rank %d", rank)
		}
	})
}

// A rank that has issued its operation but makes no progress is named, too: on goroutines nobody else does its share.
func TestStalledPeerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		var first error
		err := start(t, 3, dist.Config{Threads: 1, Log: io.Discard}, func(r *dist.Rank) error {
			w := r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 10_000), dist.Sum)
			switch r.World.Rank() {
			case 0:
				first = w.Wait()
				close(over)
			case 2:
				<-over
			}
			return w.Wait()
		})
		require.Error(t, err)
		require.ErrorContains(t, first, "allreduce seq 1 of group world: rank 2: no progress")
	})
}

// An operation is over when no peer reads its input any more: the program may change it then.
func TestInputsStayUntilTheyAreRead(t *testing.T) {
	for name, op := range map[string]func(g *dist.Group, x tensor.Tensor) dist.Work{
		"broadcast": func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Broadcast(x, 0) },
		"send": func(g *dist.Group, x tensor.Tensor) dist.Work {
			if g.Rank() == 0 {
				return g.Send(x, 1, 0)
			}
			return g.Recv(x, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := local.NewHub(2)
				hub.SetFault(func(int, int, int) bool {
					time.Sleep(time.Second) // virtual: it ends when the peer cannot go on
					return false
				})
				require.NoError(t, onHub(hub, 2, dist.Config{Threads: 1, Log: io.Discard}, func(r *dist.Rank) error {
					x := make([]float64, 10_000) // more than is posted with the operation
					x[0] = float64(1 + r.World.Rank())
					disttest.OK(op(r.World, tensor.FromSlice(x, len(x))).Wait())
					if x[0] != 1 {
						return fmt.Errorf("rank %d has %v", r.World.Rank(), x[0])
					}
					x[0] = 3
					return nil
				}))
			})
		})
	}
}

// Groups leave nothing in the hub.
func TestHubForgetsGroups(t *testing.T) {
	hub := local.NewHub(3)
	require.NoError(t, onHub(hub, 3, dist.Config{Threads: 1, Log: io.Discard}, func(r *dist.Rank) error {
		for range 50 {
			g := r.World.With()
			disttest.OK(g.Barrier().Wait())
			disttest.OK(g.Close())
		}
		return r.World.Barrier().Wait()
	}))
	require.Equal(t, 1, hub.Groups())
}

// In an eager all-reduce every rank reads all inputs: n(n-1) times the size.
func TestEagerBytes(t *testing.T) {
	var total atomic.Uint64
	require.NoError(t, start(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		err := r.World.SumFloats(make([]float64, 5))
		total.Add(r.World.Stats().Wire["allreduce"])
		return err
	}))
	require.Equal(t, uint64(3*2*40), total.Load())
}
