package dist_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/tensor"
)

func run(n int, fn func(r *dist.Rank) error) error {
	return dist.Run(context.Background(), dist.Config{Ranks: n, Threads: 1, Log: io.Discard},
		func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

// The failure of a rank cancels the context of the others.
func TestFailureCancelsContext(t *testing.T) {
	boom := errors.New("boom")
	err := dist.Run(t.Context(), dist.Config{Ranks: 3, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		if r.World.Rank() == 2 {
			return boom
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, boom)
	assert.Contains(t, err.Error(), "rank 2: boom (and 2 ranks failed because of it)")
	var e *dist.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 2, e.Rank)
}

// When the caller's context ends, ranks that wait in an operation return.
func TestCancelledRunReturns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := dist.Run(ctx, dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		if r.World.Rank() == 1 {
			cancel()
			<-ctx.Done()
			return nil
		}
		return r.World.Barrier().Wait()
	})
	require.ErrorIs(t, err, context.Canceled)
}

// slowAbort is an engine whose groups take a second to abort, or until the engine is closed.
type slowAbort struct {
	backend.Engine
	closed chan struct{}
	bad    atomic.Bool // an abort saw the engine closed
}

type slowGroup struct {
	backend.Backend
	e *slowAbort
}

func (e *slowAbort) Open(s backend.Spec) (backend.Backend, error) {
	be, err := e.Engine.Open(s)
	return slowGroup{be, e}, err
}

func (e *slowAbort) Close() error {
	close(e.closed)
	return e.Engine.Close()
}

func (g slowGroup) Abort(cause error) error {
	select {
	case <-g.e.closed:
		g.e.bad.Store(true)
	case <-time.After(time.Second):
	}
	return g.Backend.Abort(cause)
}

// Ranks notice the end of the context and return while the job is still being aborted. The abort uses the engines, so they stay open
// until it has ended.
func TestNothingIsClosedUnderAnAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := &slowAbort{Engine: local.NewHub(1).Engine(0), closed: make(chan struct{})}
		err := dist.RunEngine(ctx, dist.Config{Threads: 1, Log: io.Discard}, e, 0, 1, 1, func(ctx context.Context, _ *dist.Rank) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		require.NoError(t, err)
		time.Sleep(2 * time.Second) // virtual time: an abort that nobody waits for ends in it
		assert.False(t, e.bad.Load(), "an engine was closed while it was being aborted")
	})
}

var errBoom = errors.New("boom")

// A goroutine cannot be killed: if ranks are stuck in their own code when another one fails, what is known is printed soon, and Run returns
// after a while.
func TestStuckRank(t *testing.T) {
	for name, c := range map[string]struct {
		stuck []int
		fails func(r *dist.Rank, end context.CancelCauseFunc) error // what the others do
	}{
		"an error":              {[]int{2}, func(*dist.Rank, context.CancelCauseFunc) error { return errBoom }},
		"a panic":               {[]int{1}, func(*dist.Rank, context.CancelCauseFunc) error { panic(errBoom) }},
		"rank 0, and another":   {[]int{0, 2}, func(*dist.Rank, context.CancelCauseFunc) error { return errBoom }},
		"the caller has enough": {[]int{2}, func(_ *dist.Rank, end context.CancelCauseFunc) error { end(errBoom); return nil }},
		"others are in a barrier": {[]int{1}, func(r *dist.Rank, _ context.CancelCauseFunc) error {
			if r.World.Rank() == 2 {
				return r.World.Barrier().Wait()
			}
			return errBoom
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stuckRank(t, c.stuck, c.fails) })
		})
	}
}

func stuckRank(t *testing.T, which []int, fails func(r *dist.Rank, end context.CancelCauseFunc) error) {
	var stuck sync.WaitGroup
	stuck.Add(len(which))
	free := make(chan struct{})
	var log reliability.Log
	began := time.Now()
	time.AfterFunc(2*time.Second, func() {
		assert.Regexp(t, fmt.Sprintf("boom(.|\n)*\nrank %d has not ended yet\n", which[0]), log.String())
		assert.Contains(t, log.String(), "allreduce")
	})
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	cfg := dist.Config{Ranks: 3, Threads: 1, Log: &log, Timeout: 10 * time.Second}
	err := dist.Run(ctx, cfg, func(_ context.Context, r *dist.Rank) error {
		disttest.OK(r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 1), dist.Sum).Wait())
		if slices.Contains(which, r.World.Rank()) {
			stuck.Done()
			<-free
			return nil
		}
		stuck.Wait()
		return fails(r, end)
	})
	assert.ErrorIs(t, err, errBoom)
	assert.ErrorContains(t, err, fmt.Sprintf("dist: rank %d did not end within 26s: it is not in a collective", which[0]))
	assert.ErrorContains(t, err, "stuckRank.")
	assert.Equal(t, 26*time.Second, time.Since(began), "in virtual time")
	close(free)
	synctest.Wait()
}

// Operations that a failed job left in flight keep no memory of it: a program may run many failing jobs.
func TestFailedJobIsFreed(t *testing.T) {
	boom := errors.New("boom")
	var groups []weak.Pointer[dist.Group]
	var mu sync.Mutex
	err := run(3, func(r *dist.Rank) error {
		mu.Lock()
		groups = append(groups, weak.Make(r.World))
		mu.Unlock()
		if r.World.Rank() == 0 {
			return boom
		}
		return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 100_000), dist.Sum).Wait()
	})
	require.ErrorIs(t, err, boom)
	for _, g := range groups { // a goroutine that aborts it may be at work still
		gone := func() bool { runtime.GC(); return g.Value() == nil }
		assert.Eventually(t, gone, 20*time.Second, time.Millisecond, "the group of a rank is still reachable")
	}
}

// A failing job prints what each rank did last: once for all ranks that did the same.
func TestFlightRecorder(t *testing.T) {
	var log bytes.Buffer
	var issued sync.WaitGroup
	issued.Add(5)
	err := dist.Run(t.Context(), dist.Config{Ranks: 6, Log: &log}, func(_ context.Context, r *dist.Rank) error {
		disttest.OK(r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 100), dist.Sum).Wait())
		if r.World.Rank() == 4 {
			issued.Wait()
			return nil
		}
		w := r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 300), dist.Sum)
		issued.Done()
		return w.Wait()
	})
	require.ErrorContains(t, err, "rank 4: allreduce seq 2 of group world: has left the job")
	require.Regexp(t, `^ranks 0-5: allreduce by direct seq 1 of group world, 400 bytes, at [\d.]+( to [\d.]+)? s, took [\d.]+( to [\d.]+)? µs
ranks 0-3, 5: allreduce by direct seq 2 of group world, 1200 bytes, at [\d.]+( to [\d.]+)? s, in flight
$`, log.String())
}

// stopped is an engine whose process is stopped for a while as soon as its rank has slept once.
type stopped struct {
	*local.Engine
	time time.Duration
}

func (e *stopped) Park(ctx context.Context) error {
	if e.time == 0 {
		return e.Engine.Park(ctx)
	}
	<-ctx.Done()
	time.Sleep(e.time)
	e.time = 0
	return ctx.Err() // the peer may come at the same time, and Park may see either first
}

// If a rank is stopped while it waits, its time may be over when it continues. But the other rank came in time, so there is no error.
func TestStoppedRankLooksBeforeItBlames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		hub := local.NewHub(2)
		engines := []backend.Engine{&stopped{Engine: hub.Engine(0).(*local.Engine), time: timeout + timeout/5}, hub.Engine(1)}
		cfg := dist.Config{Threads: 1, Log: io.Discard, Timeout: timeout}
		require.NoError(t, dist.RunEngines(t.Context(), cfg, engines, func(_ context.Context, r *dist.Rank) error {
			if r.World.Rank() == 1 {
				time.Sleep(timeout / 2) // virtual time
			}
			return errors.Join(r.World.Barrier().Wait(), r.World.Barrier().Wait())
		}))
	})
}

// A time in which nothing can happen fails the group at once.
func TestGroupWithoutTimeout(t *testing.T) {
	for _, d := range []time.Duration{0, -1} {
		err := dist.Run(t.Context(), dist.Config{Ranks: 2, Exact: true}, func(_ context.Context, r *dist.Rank) error {
			return r.World.With(dist.Timeout(d), dist.Name("none")).Barrier().Wait()
		})
		assert.ErrorContains(t, err, fmt.Sprintf("group none: Timeout(%v): it must be more than 0", d))
	}
	assert.EqualError(t, dist.Run(t.Context(), dist.Config{}, nil), "dist: Run's function is nil")
}

// Each group has its own timeout.
func TestGroupTimeout(t *testing.T) {
	begin := time.Now()
	err := run(2, func(r *dist.Rank) error {
		g := r.World.With(dist.Timeout(20*time.Millisecond), dist.Name("impatient"))
		if r.World.Rank() == 0 {
			return g.Barrier().Wait()
		}
		return r.World.Barrier().Wait()
	})
	require.ErrorContains(t, err, "barrier seq 1 of group impatient: rank 1 did not arrive within 20ms")
	assert.Less(t, time.Since(begin), time.Second+reliability.Slack)
}

// A failed group does not harm the group that it was made from, nor its siblings.
func TestFailureStaysInItsGroup(t *testing.T) {
	require.NoError(t, run(2, func(r *dist.Rank) error {
		bad, good := r.World.With(), r.World.With()
		if err := bad.AllReduce(tensor.New(r.Device, tensor.Float32, 1+r.World.Rank()), dist.Sum).Wait(); err == nil {
			return errors.New("no mismatch")
		}
		return errors.Join(good.Barrier().Wait(), r.World.Barrier().Wait())
	}))
}

// A failed group fails those made from it, with the same cause.
func TestFailureReachesChildren(t *testing.T) {
	boom := errors.New("boom")
	require.NoError(t, run(2, func(r *dist.Rank) error {
		child := r.World.With().With()
		disttest.OK(child.Barrier().Wait())
		if r.World.Rank() == 0 {
			r.World.Abort(boom)
		}
		if err := child.AllReduce(tensor.New(r.Device, tensor.Float32, 1000), dist.Sum).Wait(); !errors.Is(err, boom) {
			return fmt.Errorf("child: %w", err)
		}
		return nil
	}))
}

func TestStats(t *testing.T) {
	require.NoError(t, run(2, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 1000)
		for range 3 {
			disttest.OK(r.World.AllReduce(x, dist.Sum).Wait())
		}
		s := r.World.Stats()
		if s.Calls["allreduce"] != 3 || s.Payload["allreduce"] != 12_000 || s.WireBytes() != s.Wire["allreduce"] || s.WireBytes() == 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}))
}

func TestTrace(t *testing.T) {
	var mu sync.Mutex
	spans := map[int][]trace.Span{}
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Trace: 100}, func(_ context.Context, r *dist.Rank) error {
		disttest.OK(r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 1000), dist.Sum).Wait())
		mu.Lock()
		defer mu.Unlock()
		spans[r.World.Rank()] = append(spans[r.World.Rank()], r.Trace.Spans()...)
		return nil
	})
	require.NoError(t, err)
	for rank, s := range spans {
		s = slices.DeleteFunc(s, func(s trace.Span) bool { return s.Track != trace.Comm })
		require.Len(t, s, 1, "rank %d", rank)
		assert.Equal(t, "allreduce:direct", s[0].Name)
		assert.EqualValues(t, 4000, s[0].Arg)
		assert.GreaterOrEqual(t, s[0].End, s[0].Start)
	}
	require.Len(t, spans, 2)
}

func TestAlgorithmFromEnvironment(t *testing.T) {
	barrier := func(r *dist.Rank) error { return r.World.Barrier().Wait() }
	t.Setenv("RINGO_ALGO", "allreduce:direct,direct")
	require.NoError(t, run(2, barrier))
	t.Setenv("RINGO_ALGO", "foo")
	require.ErrorContains(t, run(2, barrier), `unknown algorithm "foo"; this engine has: direct`)
	t.Setenv("RINGO_ALGO", "allsum:direct")
	require.ErrorContains(t, run(2, barrier), `no operation is called "allsum"`)
}

// RINGO_BITS=rank works. It is an error if RINGO_ALGO or a group asks for another order.
func TestRankOrderFromEnvironment(t *testing.T) {
	t.Setenv("RINGO_BITS", "rank")
	t.Setenv("RINGO_ALGO", "allreduce:direct")
	const contradiction = `algorithm "allreduce:ring" contradicts RINGO_BITS=rank: allreduce may be linear, direct or rank-order`
	require.NoError(t, run(2, func(r *dist.Rank) error {
		g := r.World.With(dist.Algo("allreduce:ring"))
		assert.ErrorContains(t, g.Barrier().Wait(), contradiction)
		x := tensor.FromSlice([]float32{1}, 1)
		disttest.OK(r.World.Reduce(x, dist.Sum, 0).Wait())
		assert.Equal(t, map[string]uint64{"reduce:direct": 1}, r.World.Stats().Ran)
		return nil
	}))
	nothing := func(*dist.Rank) error { return nil }
	t.Setenv("RINGO_ALGO", "broadcast:direct,allreduce:ring")
	require.ErrorContains(t, run(2, nothing), contradiction)
	t.Setenv("RINGO_ALGO", "ring")
	require.ErrorContains(t, run(2, nothing), `algorithm "ring" contradicts RINGO_BITS=rank: reduce may be linear`)
	t.Setenv("RINGO_BITS", "ring")
	require.ErrorContains(t, run(2, nothing), `RINGO_BITS=ring: it is rank, or not set`)
}

// The launcher's number of ranks is used, unless the caller sets Exact.
func TestExactRanks(t *testing.T) {
	t.Setenv("RINGO_RANK", "0")
	t.Setenv("RINGO_WORLD_SIZE", "1")
	size := 0
	fn := func(_ context.Context, r *dist.Rank) error {
		size = r.World.Size()
		return r.World.Barrier().Wait()
	}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 4}, fn))
	assert.Equal(t, 1, size)
	require.ErrorContains(t, dist.Run(t.Context(), dist.Config{Ranks: 4, Exact: true}, fn), "asks for 4 ranks, but ringo started 1")
}

// Programs that a rank starts do not inherit the secret. A second job of the process still has it.
func TestSecretLeavesTheEnvironment(t *testing.T) {
	t.Setenv("RINGO_RANK", "0")
	t.Setenv("RINGO_WORLD_SIZE", "1")
	t.Setenv("RINGO_JOB_SECRET", strings.Repeat("0f", 32))
	for range 2 {
		require.NoError(t, dist.Run(t.Context(), dist.Config{}, func(context.Context, *dist.Rank) error {
			if _, there := os.LookupEnv("RINGO_JOB_SECRET"); there {
				return errors.New("it is there")
			}
			return nil
		}))
	}
}

// The launcher's timeout and threads override the program's own settings.
func TestEnvironmentBeatsConfig(t *testing.T) {
	t.Setenv("RINGO_TIMEOUT", "41s")
	err := dist.Run(t.Context(), dist.Config{Timeout: time.Hour}, func(_ context.Context, r *dist.Rank) error {
		if r.World.Timeout() != 41*time.Second {
			return fmt.Errorf("timeout %v", r.World.Timeout())
		}
		return nil
	})
	require.NoError(t, err)
}

func TestUnknownAxisFails(t *testing.T) {
	err := run(2, func(r *dist.Rank) error {
		m := disttest.Must(r.Mesh("dp=2"))
		return m.Group("pp").Barrier().Wait()
	})
	require.ErrorContains(t, err, `no axis "pp"; there are dp`)
}
