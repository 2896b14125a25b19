package tcp_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/faultnet"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// over makes a Start whose ranks are connected by wire, with or without TLS, and may give no sign of life for so long.
func over(silence time.Duration, secret []byte, wire func(low, high int) (net.Conn, net.Conn)) disttest.Start {
	return func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		made, err := tcp.Connected(n, silence, tcp.Lines{Secret: secret}, wire)
		require.NoError(t, err)
		return runProcesses(cfg, made, fn)
	}
}

// The whole suite, in its short form, passes when each write of each connection is late by a random time, so that connections overtake each
// other, and little fits on the way.
func TestLongConformanceWithDelays(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Run("checksums", func(t *testing.T) { disttest.RunShort(t, over(time.Minute, nil, delayed())) })
	t.Run("encrypted", func(t *testing.T) { disttest.RunShort(t, over(time.Minute, make([]byte, tcp.SecretBytes), delayed())) })
}

func TestSameBitsWithDelays(t *testing.T) {
	t.Parallel()
	disttest.SameBits(t, over(time.Minute, nil, delayed()))
}

func TestLongSameBitsWithDelays(t *testing.T) { reliability.AsLong(t, TestSameBitsWithDelays) }

func delayed() func(int, int) (net.Conn, net.Conn) {
	var made atomic.Uint64
	return func(int, int) (net.Conn, net.Conn) {
		n := made.Add(1)
		there := faultnet.Plan{Seed: n, Delay: 100 * time.Microsecond, Buffer: 64 << 10}
		back := there
		back.Seed = n << 32
		return faultnet.Pair(there, back)
	}
}

// lossy makes a Start in which one connection has a fault of this kind. A case whose job failed for it is over: skipped, after a look at
// the error. The others go on as if nothing were.
func lossy(kind faultnet.Kind, seed uint64) disttest.Start {
	rng := rand.New(rand.NewPCG(seed, uint64(kind)))
	var mu sync.Mutex // cases run side by side
	return func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		mu.Lock()
		plan := faultnet.Plan{Seed: rng.Uint64(), Fault: &faultnet.Fault{Kind: kind, At: rng.IntN(120)}}
		if seed == 0 { // the first write: what cases wait for may never come
			plan.Fault.At = 0
		}
		var conns, hit atomic.Int32
		victim := rng.Int32N(int32(max(n*(n-1)/2, 1)))
		mu.Unlock()
		plan.Hit = func() { hit.Add(1) }
		start := over(2*time.Second, nil, func(int, int) (net.Conn, net.Conn) {
			if conns.Add(1)-1 == victim {
				return faultnet.Pair(plan, faultnet.Plan{})
			}
			return faultnet.Pair(faultnet.Plan{}, faultnet.Plan{})
		})
		watch := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("%s hangs: %d ranks, %v", t.Name(), n, plan)) })
		defer watch.Stop()
		err := start(t, n, cfg, fn)
		if hit.Load() == 0 {
			return err
		}
		var e *dist.Error
		if err != nil && assert.ErrorAs(t, err, &e, "%v", plan) {
			assert.NotContains(t, err.Error(), ": element ", "a wrong result")
			assert.GreaterOrEqual(t, e.Rank, 0, "%v: %v", plan, err)
			if e.Group != "" { // else a rank's own: a case expected something else than the error that it got
				assert.NotEmpty(t, e.Op, "%v: %v", plan, err)
			}
		}
		t.Skipf("%d ranks, %v: %v", n, plan, err)
		return nil
	}
}

// The whole suite, in its short form, again and again for each thing that can happen to a connection: it loses, repeats, swaps or changes
// something, is cut or falls silent, once in each job. Each case ends in time: with right results, or with an error that names a rank and
// an operation.
func TestLongConformanceWithFaults(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for kind := range faultnet.Kind(faultnet.NumKinds) {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(kind, " ", seed), func(t *testing.T) { disttest.RunShort(t, lossy(kind, seed)) })
		}
	}
}
