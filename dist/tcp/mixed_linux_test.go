package tcp_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// startMixed runs fn on n ranks that take turns on two hosts: groups inside a host use shared memory, the others connections.
func startMixed(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return onMachines(t, n, func(rank int) string { return fmt.Sprint(rank % 2) }, cfg, fn)
}

func onMachines(t *testing.T, n int, machine func(rank int) string, cfg dist.Config, fn func(r *dist.Rank) error) error {
	return run(t, n, cfg, nil, func(c *tcp.Config) { c.SetMachine(machine(c.Rank)) }, fn)
}

// What the two kinds of groups could get wrong together. The long form of TestConformance has all.
func TestMixedConformance(t *testing.T) {
	t.Parallel()
	disttest.Run(t, startMixed, "Groups", "PointToPoint")
}

// A group uses shared memory when all its members are on one host whose ranks all offer it.
func TestWhichGroupsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		machines      string // one letter a rank
		not           int    // the rank that does not want to
		world, tp, dp string
		across        []string // engine of tp by rank, where it differs
		long          bool     // it is of the long form alone
	}{
		{"two hosts", "aabb", -1, "tcp", "shm", "tcp", nil, true},
		{"ranks take turns", "abab", -1, "tcp", "tcp", "shm", nil, false},
		{"one host does not want to", "aabb", 3, "tcp", "", "tcp", []string{"shm", "shm", "tcp", "tcp"}, false},
		{"a rank alone", "aaab", -1, "tcp", "", "", []string{"shm", "shm", "tcp", "tcp"}, true},
		{"one host", "aaaa", -1, "shm", "shm", "shm", nil, true},
	} {
		if c.long && !reliability.Long(t) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, run(t, 4, dist.Config{Threads: 1}, nil, func(cfg *tcp.Config) {
				cfg.SetMachine(c.machines[cfg.Rank : cfg.Rank+1])
				cfg.NoShared = cfg.Rank == c.not
			}, func(r *dist.Rank) error {
				m := disttest.Must(r.Mesh("dp=2,tp=2"))
				tp := c.tp
				if c.across != nil {
					tp = c.across[r.World.Rank()]
				}
				for _, g := range []struct{ got, want string }{{r.Engine(), c.world}, {m.Group("tp").Engine(), tp}, {m.Group("dp").Engine(), c.dp}} {
					if g.want != "" && g.got != g.want {
						return fmt.Errorf("rank %d: %+v", r.World.Rank(), g)
					}
				}
				x := []float64{float64(r.World.Rank())}
				disttest.OK(m.Group("tp").SumFloats(x))
				disttest.OK(m.Group("dp").SumFloats(x))
				if x[0] != 6 {
					return fmt.Errorf("sum is %v", x)
				}
				return r.World.Barrier().Wait()
			}))
		})
	}
}

func TestLongWhichGroupsShare(t *testing.T) { reliability.AsLong(t, TestWhichGroupsShare) }

// A rank that waits for another host moves what the ranks of its own host wait for: here rank 0 waits for rank 2, which
// waits for rank 3, for rank 1, and so for rank 0.
func TestWaitingDrivesBothKinds(t *testing.T) {
	t.Parallel()
	const rounds, count = 200, 10_000
	var took []time.Duration
	stop := handOvers(t)
	require.NoError(t, onMachines(t, 4, func(rank int) string { return fmt.Sprint(rank / 2) }, dist.Config{
		Threads: 1,
	}, func(r *dist.Rank) error {
		m := disttest.Must(r.Mesh("dp=2,tp=2"))
		g, me := r.World, r.World.Rank()
		x, y := tensor.New(r.Device, tensor.Float32, count), tensor.New(r.Device, tensor.Float32, count)
		token := tensor.New(r.Device, tensor.Int32, 1)
		in := func() dist.Work { return m.Group("tp").AllReduce(x, dist.Max) }
		across := func() dist.Work { return m.Group("dp").AllReduce(y, dist.Max) }
		for range rounds {
			begin := time.Now()
			var works []dist.Work // in the order in which the rank waits
			switch me {
			case 0:
				a := in()
				works = []dist.Work{across(), a}
			case 1: // comes late: rank 0 sleeps by then
				disttest.OK(errors.Join(g.Recv(token, 3, 0).Wait(), in().Wait()))
				works = []dist.Work{g.Send(token, 3, 0), across()}
			case 2:
				disttest.OK(in().Wait())
				works = []dist.Work{across()}
			case 3:
				disttest.OK(errors.Join(g.Send(token, 1, 0).Wait(), g.Recv(token, 1, 0).Wait()))
				works = []dist.Work{in(), across()}
			}
			for _, w := range works {
				if err := w.Wait(); err != nil {
					return fmt.Errorf("rank %d: %w", me, err)
				}
			}
			if me == 0 {
				took = append(took, time.Since(begin))
			}
		}
		return g.Barrier().Wait()
	}))
	prompt(t, took, stop())
}

// prompt: a rank that only looks now and then needs 50 ms for each round, one that is woken not much more than the machine needs to
// hand a byte over as often. Where that takes long already, the machine is busy, and only the fast rounds tell.
func prompt(t *testing.T, took, handOvers []time.Duration) {
	t.Helper()
	slices.Sort(took)
	slices.Sort(handOvers)
	usual, at := handOvers[len(handOvers)/2], len(took)/2
	if usual > time.Millisecond {
		at = len(took) / 10
	}
	t.Logf("median %v, hand-overs %v", took[len(took)/2], usual)
	assert.Less(t, took[at], 25*time.Millisecond+3*usual, "%d rounds, the fastest %v, the slowest %v", len(took), took[0], took[len(took)-1])
}

// handOvers measures how long it takes to send a byte to and fro through a socket four times, again and again until the function
// that it returns is called.
func handOvers(t *testing.T) (stop func() []time.Duration) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(far, far) }) // until near is closed
	var took []time.Duration
	over := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		b := make([]byte, 1)
		for {
			begin := time.Now()
			for range 4 {
				_, err := near.Write(b)
				_, err2 := near.Read(b)
				assert.NoError(t, errors.Join(err, err2))
			}
			took = append(took, time.Since(begin))
			select {
			case <-tick.C:
			case <-over:
				near.Close()
				return
			}
		}
	})
	return func() []time.Duration {
		close(over)
		wg.Wait()
		far.Close()
		return took
	}
}

// Two goroutines of a rank wait, each for a group of another kind.
func TestTwoGoroutinesWaitForBothKinds(t *testing.T) {
	t.Parallel()
	const rounds, count = 100, 30_000
	took := map[string][]time.Duration{}
	var mu sync.Mutex
	stop := handOvers(t)
	require.NoError(t, onMachines(t, 4, func(rank int) string { return fmt.Sprint(rank / 2) }, dist.Config{
		Threads: 1,
	}, func(r *dist.Rank) error {
		m := disttest.Must(r.Mesh("dp=2,tp=2"))
		loop := func(g *dist.Group) error {
			x := tensor.New(r.Device, tensor.Float32, count)
			for range rounds {
				begin := time.Now()
				if err := g.AllReduce(x, dist.Sum).Wait(); err != nil {
					return err
				}
				if r.World.Rank() == 0 {
					mu.Lock()
					took[g.Name()] = append(took[g.Name()], time.Since(begin))
					mu.Unlock()
				}
			}
			return nil
		}
		dp, tp, other := m.Group("dp"), m.Group("tp"), make(chan error, 1)
		go func() { other <- loop(dp) }()
		err := loop(tp)
		disttest.OK(<-other)
		return err
	}))
	require.Len(t, took, 2)
	usual := stop()
	for _, each := range took {
		prompt(t, each, usual)
	}
}
