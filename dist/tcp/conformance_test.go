package tcp_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/shm"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// process is an engine whose rank ends on its own, as ranks that are processes do.
type process struct {
	*tcp.Engine
	ended *sync.WaitGroup
}

func (p process) Close() error {
	p.ended.Go(func() { p.Engine.Close() })
	return nil
}

// start runs fn on n ranks that are connected through 127.0.0.1.
func start(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return run(t, n, cfg, nil, func(c *tcp.Config) { c.NoShared = true }, fn)
}

// unencrypted does without encryption.
func unencrypted(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return run(t, n, cfg, nil, func(c *tcp.Config) { c.NoShared, c.Plain = true, true }, fn)
}

func run(t *testing.T, n int, cfg dist.Config, fault shm.Fault, change func(*tcp.Config), fn func(r *dist.Rank) error) error {
	engines := join(t, n, change)
	if fault != nil {
		for _, e := range engines {
			e.SetSharedFault(fault)
		}
	}
	return runProcesses(cfg, engines, fn)
}

// join connects n ranks of this process through 127.0.0.1.
func join(t *testing.T, n int, change func(*tcp.Config)) []*tcp.Engine {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	secret, err := tcp.ParseSecret(tcp.NewSecret())
	require.NoError(t, err)
	engines, errs := make([]*tcp.Engine, n), make([]error, n)
	var joining sync.WaitGroup
	for r := range n {
		c := tcp.Config{Rank: r, Size: n, Addr: l.Addr().String(), Secret: secret, Timeout: time.Minute, JoinTimeout: 20 * time.Second}
		if r == 0 {
			c.Listener = l
		}
		change(&c)
		joining.Go(func() { engines[r], errs[r] = tcp.Join(t.Context(), c) })
	}
	joining.Wait()
	require.NoError(t, errors.Join(errs...))
	return engines
}

// runProcesses runs fn on engines whose ranks end on their own.
func runProcesses(cfg dist.Config, joined []*tcp.Engine, fn func(r *dist.Rank) error) error {
	engines := make([]backend.Engine, len(joined))
	var ended sync.WaitGroup
	for r, e := range joined {
		engines[r] = process{e, &ended}
	}
	defer ended.Wait()
	return dist.RunEngines(context.Background(), cfg, engines, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

// wiring is a way to connect ranks.
type wiring struct {
	name  string
	start disttest.Start
	parts []string // of the conformance suite in the short form; none: it is of the long form alone
}

// wirings has more on Linux.
var wirings = []wiring{
	{"encrypted", start, []string{"Reductions", "NaN", "HalfRoundsOnce", "Movement", "VForms", "Bytes", "Groups", "InFlight", "Backpressure",
		"PointToPoint", "TwoGoroutines"}},
	{"unencrypted", unencrypted, nil},
}

func wired(t *testing.T, test func(t *testing.T, start disttest.Start), but ...string) {
	for _, w := range wirings {
		if (w.parts != nil || reliability.Long(t)) && !slices.Contains(but, w.name) {
			t.Run(w.name, func(t *testing.T) { test(t, w.start) })
		}
	}
}

// In the short form, the wirings share the parts, unless there is one. Those that are about what is above the engine are left to goroutines
// (dist/local) then, and to the long form.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, w := range wirings {
		parts := w.parts
		if parts == nil && !reliability.Long(t) {
			continue
		} else if reliability.Long(t) || len(wirings) == 2 {
			parts = nil // all
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			disttest.Run(t, w.start, parts...)
		})
	}
}

func TestLongConformance(t *testing.T) { reliability.AsLong(t, TestConformance) }

// Ranks whose devices have memory of their own: what they exchange goes through the host's.
func TestConformanceOfDevices(t *testing.T) {
	t.Parallel()
	wired(t, func(t *testing.T, start disttest.Start) {
		t.Parallel()
		parts := []string{"Movement"}
		if strings.HasSuffix(t.Name(), "shared") {
			parts = []string{"InPlace"}
		}
		if reliability.Long(t) || len(wirings) == 2 {
			parts = []string{"Movement", "InPlace", "InFlight", "PointToPoint", "Batch", "TwoGoroutines", "Edges"}
		}
		disttest.Run(t, disttest.OnDevices(start), parts...)
	})
}

func TestLongConformanceOfDevices(t *testing.T) { reliability.AsLong(t, TestConformanceOfDevices) }

// In the short form with one wiring: TestWhichGroupsShare and TestSharedFailures open and close groups in shared memory.
func TestGroupsComeAndGo(t *testing.T) {
	if reliability.Long(t) {
		wired(t, disttest.GroupsComeAndGo)
	} else {
		disttest.GroupsComeAndGo(t, start)
	}
}

func TestLongGroupsComeAndGo(t *testing.T) { reliability.AsLong(t, TestGroupsComeAndGo) }

func TestSameBitsAsGoroutines(t *testing.T) {
	t.Parallel()
	wired(t, func(t *testing.T, start disttest.Start) {
		t.Parallel()
		disttest.SameBits(t, start)
	}, "mixed") // between hosts, bits are those of goroutines with RINGO_BITS=rank alone
}

func TestLongSameBitsAsGoroutines(t *testing.T) { reliability.AsLong(t, TestSameBitsAsGoroutines) }

// The last wiring is, on Linux, that of two hosts: the short form has it alone.
func TestSameBitsInRankOrder(t *testing.T) {
	t.Setenv("RINGO_BITS", "rank")
	if !reliability.Long(t) {
		disttest.SameBits(t, wirings[len(wirings)-1].start)
		return
	}
	wired(t, disttest.SameBits, "unencrypted") // the order of a sum is that of encrypted messages
}

func TestLongSameBitsInRankOrder(t *testing.T) { reliability.AsLong(t, TestSameBitsInRankOrder) }
