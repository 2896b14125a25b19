package disttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// errors makes the mistakes of users and checks the error texts.
func (s *suite) errors(t *testing.T) {
	t.Run("Absent", s.absent)
	t.Run("MonitoredBarrier", s.monitored)
	t.Run("Mismatch", s.mismatch)
	t.Run("Arguments", s.arguments)
	t.Run("RankFails", s.rankFails)
	t.Run("RankPanics", s.rankPanics)
	t.Run("NeverWaitedFor", s.neverWaitedFor)
	t.Run("FirstCauseStays", s.firstCauseStays)
	t.Run("WaitHostCancelled", s.waitHostCancelled)
	t.Run("Algorithms", s.algorithms)
	t.Run("TwoGoroutinesOneGroup", s.oneGroupTwice)
}

// absent: if only rank 0 of 4 calls Reduce, the error names the others.
func (s *suite) absent(t *testing.T) {
	timeout := time.Second // long enough for the barrier before it on a busy machine
	if Long() {
		timeout = 2 * time.Second
	}
	over := make(chan struct{})
	s.fails(t, 1, 4, timeout, timeout+200*time.Millisecond, []string{"reduce seq 2", "ranks 1-3 did not arrive"}, func(r *dist.Rank) error {
		if r.World.Rank() == 0 {
			defer close(over)
			return r.World.Reduce(filled(r.World, tensor.Float32, 10, func(int) float64 { return 1 }), dist.Sum, 0).Wait()
		}
		<-over
		return r.World.Barrier().Wait()
	})
}

// monitored: a MonitoredBarrier names all missing ranks, on every engine.
func (s *suite) monitored(t *testing.T) {
	timeout, over := time.Second, make(chan struct{})
	s.fails(t, 30, 4, timeout, timeout+200*time.Millisecond, []string{"monitoredbarrier seq 2", "ranks 1, 3 did not arrive"}, func(r *dist.Rank) error {
		switch r.World.Rank() {
		case 0:
			defer close(over)
		case 1, 3:
			<-over
		}
		return r.World.MonitoredBarrier().Wait()
	})
}

// mismatch: if ranks call different operations with one sequence number, all get an error that says who called what.
func (s *suite) mismatch(t *testing.T) {
	f32 := func(r *dist.Rank, n int) tensor.Tensor { return tensor.New(r.Device, tensor.Float32, n) }
	cases := []struct {
		name  string
		row   int
		texts []string
		calls [2]func(r *dist.Rank) dist.Work // of each rank
	}{
		{"Kinds", 2, []string{"allreduce seq 2", "broadcast seq 2", "rank 0", "rank 1"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 10), dist.Sum) },
			func(r *dist.Rank) dist.Work { return r.World.Broadcast(f32(r, 10), 0) }}},
		{"Counts", 3, []string{"count 10 (rank 0) vs 12 (rank 1)", "float32[10]", "float32[12]"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 10), dist.Sum) },
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 12), dist.Sum) }}},
		{"LargeCounts", 3, []string{"count 50000 (rank 0) vs 50001 (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 50_000), dist.Sum) },
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 50_001), dist.Sum) }}},
		{"Types", 4, []string{"float32", "bfloat16"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 10), dist.Sum) },
			func(r *dist.Rank) dist.Work {
				return r.World.AllReduce(tensor.New(r.Device, tensor.BFloat16, 10), dist.Sum)
			}}},
		{"Reductions", 5, []string{"op sum (rank 0) vs max (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 10), dist.Sum) },
			func(r *dist.Rank) dist.Work { return r.World.AllReduce(f32(r, 10), dist.Max) }}},
		{"Roots", 6, []string{"root 0 (rank 0) vs 1 (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.Broadcast(f32(r, 10), 0) },
			func(r *dist.Rank) dist.Work { return r.World.Broadcast(f32(r, 10), 1) }}},
		{"AllToAllV", 7, []string{"rank 0 sends 3 rows to rank 1, which expects 4"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work {
				return r.World.AllToAllV(f32(r, 6).View(3, 2), f32(r, 8).View(4, 2), []int{1, 2}, []int{1, 3})
			},
			func(r *dist.Rank) dist.Work {
				return r.World.AllToAllV(f32(r, 10).View(5, 2), f32(r, 6).View(3, 2), []int{4, 1}, []int{2, 1})
			}}},
		{"AllGatherV", 8, []string{"counts[1] = 3 (rank 0) vs 4 (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.AllGatherV(f32(r, 5), f32(r, 2), []int{2, 3}) },
			func(r *dist.Rank) dist.Work { return r.World.AllGatherV(f32(r, 6), f32(r, 4), []int{2, 4}) }}},
		{"Groups", 2, []string{"group left (rank 0) vs group right (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.With(dist.Name("left")).Barrier() },
			func(r *dist.Rank) dist.Work { return r.World.With(dist.Name("right")).Barrier() }}},
		{"Meshes", 2, []string{"group mesh a=2,b=1 (rank 0) vs group mesh a=1,b=2 (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return meshBarrier(r, "a=2,b=1") },
			func(r *dist.Rank) dist.Work { return meshBarrier(r, "a=1,b=2") }}},
		{"Tags", 2, []string{"tag 4 (rank 0) vs 5 (rank 1)"}, [2]func(r *dist.Rank) dist.Work{
			func(r *dist.Rank) dist.Work { return r.World.Send(f32(r, 1), 1, 4) },
			func(r *dist.Rank) dist.Work { return r.World.Recv(f32(r, 1), 0, 5) }}},
	}
	var mistakes []mistake
	for _, c := range cases {
		mistakes = append(mistakes, mistake{c.name, c.row, 500 * time.Millisecond, c.texts, func(r *dist.Rank) error {
			return c.calls[r.World.Rank()](r).Wait()
		}})
	}
	s.failEach(t, 2, mistakes)
	t.Run("ThreeRanks", func(t *testing.T) {
		s.fails(t, 3, 3, 0, 500*time.Millisecond, []string{"count 10", "12", "rank 2"}, func(r *dist.Rank) error {
			return r.World.AllReduce(f32(r, 10+r.World.Rank()/2*2), dist.Sum).Wait()
		})
	})
}

// meshBarrier makes a mesh and uses the group of all its ranks.
func meshBarrier(r *dist.Rank, spec string) dist.Work {
	m, err := r.Mesh(spec)
	if err != nil {
		panic(err)
	}
	return m.Group("a", "b").Barrier()
}

// arguments: a mistake that one rank can see by itself is an error at once, and nothing is sent. The group fails, so that the peers do
// not wait for an operation that never comes.
func (s *suite) arguments(t *testing.T) {
	var mistakes []mistake
	for _, c := range []struct {
		name  string
		row   int
		texts []string
		call  func(r *dist.Rank, x tensor.Tensor) dist.Work
	}{
		{"Indivisible", 9, []string{"reducescatter", "float32[7]", "ReduceScatterV"}, func(r *dist.Rank, x tensor.Tensor) dist.Work {
			return r.World.ReduceScatter(x.Range(0, 3), x.Range(0, 7), dist.Sum)
		}},
		{"AvgOfInts", 10, []string{"avg", "int32"}, func(r *dist.Rank, _ tensor.Tensor) dist.Work {
			return r.World.AllReduce(tensor.New(r.Device, tensor.Int32, 4), dist.Avg)
		}},
		{"BitsOfFloats", 10, []string{"bxor", "float32"}, func(r *dist.Rank, x tensor.Tensor) dist.Work {
			return r.World.AllReduce(x, dist.BXor)
		}},
		{"NegativeRoot", 11, []string{"root -1", "0 to 1"}, func(r *dist.Rank, x tensor.Tensor) dist.Work { return r.World.Broadcast(x, -1) }},
		{"RootTooLarge", 11, []string{"root 2", "0 to 1"}, func(r *dist.Rank, x tensor.Tensor) dist.Work {
			return r.World.Reduce(x, dist.Sum, 2)
		}},
		{"SendToSelf", 11, []string{"send", "this rank itself"}, func(r *dist.Rank, x tensor.Tensor) dist.Work { return r.World.Send(x, r.World.Rank(), 0) }},
		{"PeerTooLarge", 11, []string{"recv", "peer 2", "0 to 1"}, func(r *dist.Rank, x tensor.Tensor) dist.Work { return r.World.Recv(x, 2, 0) }},
		{"Overlap", 12, []string{"overlap", "allgather"}, func(r *dist.Rank, x tensor.Tensor) dist.Work {
			return r.World.AllGather(x.Range(0, 4), x.Range(1, 3))
		}},
		{"AllToAllInPlace", 12, []string{"overlap", "alltoall"}, func(r *dist.Rank, x tensor.Tensor) dist.Work { return r.World.AllToAll(x, x) }},
		{"Sizes", 12, []string{"allgather", "float32[3]", "float32[5]"}, func(r *dist.Rank, x tensor.Tensor) dist.Work {
			return r.World.AllGather(x.Range(3, 8), x.Range(0, 3))
		}},
		{"Rows", 12, []string{"allgatherv", "sum to 5 rows"}, func(r *dist.Rank, x tensor.Tensor) dist.Work {
			return r.World.AllGatherV(x.Range(4, 8), x.Range(0, 2), []int{2, 3})
		}},
	} {
		mistakes = append(mistakes, mistake{c.name, c.row, 500 * time.Millisecond, c.texts, func(r *dist.Rank) error {
			if r.World.Rank() == 1 {
				return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 9), dist.Sum).Wait() // waits for rank 0
			}
			err := c.call(r, tensor.New(r.Device, tensor.Float32, 8)).Wait()
			if wire := r.World.Stats().WireBytes(); wire != 0 {
				return fmt.Errorf("%w; %d bytes were sent", err, wire)
			}
			return err
		}})
	}
	s.failEach(t, 2, mistakes)
}

var errBoom = errors.New("boom")

// rankFails: Run returns the error of the rank that failed, not an echo of it.
func (s *suite) rankFails(t *testing.T) {
	var begin time.Time
	var engine string
	err := s.start(t, 4, quiet(0), func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			begin, engine = time.Now(), r.Engine()
			return errBoom
		}
		return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 10), dist.Sum).Wait()
	})
	require.ErrorIs(t, err, errBoom)
	assert.True(t, strings.HasPrefix(err.Error(), "rank 1: boom"), err.Error())
	assert.Contains(t, err.Error(), "3 ranks failed because of it")
	reliability.Took(t, 16, engine, time.Second, time.Since(begin))
}

// rankPanics: a panic, or runtime.Goexit as testify's require calls it, ends the job with the stack.
func (s *suite) rankPanics(t *testing.T) {
	for name, die := range map[string]func(){
		"panic: out of luck": func() { panic("out of luck") }, "runtime.Goexit": runtime.Goexit,
	} {
		var begin time.Time
		var engine string
		err := s.start(t, 4, quiet(0), func(r *dist.Rank) error {
			if r.World.Rank() == 3 {
				begin, engine = time.Now(), r.Engine()
				die()
			}
			return r.World.Barrier().Wait()
		})
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), "rank 3: "+name, name)
		assert.Contains(t, err.Error(), "rankPanics", name) // the stack
		reliability.Took(t, 17, engine, time.Second, time.Since(begin))
	}
	err := s.start(t, 2, quiet(0), func(r *dist.Rank) error {
		panic(&tensor.Failure{Op: "MatMul", Err: errBoom})
	})
	require.ErrorIs(t, err, errBoom)
}

// neverWaitedFor: if nobody waited for a failed operation, the failure is reported at the end. An operation that succeeded is not.
func (s *suite) neverWaitedFor(t *testing.T) {
	run := func(count int) error {
		return s.start(t, 2, quiet(0), func(r *dist.Rank) error {
			r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 10+count*r.World.Rank()), dist.Sum) //discard: this is the mistake
			return nil
		})
	}
	require.NoError(t, run(0))
	err := run(1)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "allreduce seq 1 of group world was never waited for")
	assert.Contains(t, err.Error(), "count 10 (rank 0) vs 11 (rank 1)")
}

// firstCauseStays: every later call returns the first failure, unchanged and at once, and moves no bytes.
func (s *suite) firstCauseStays(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		g := r.World
		x := tensor.New(r.Device, tensor.Float32, 3000)
		first := g.AllReduce(x.Range(0, 10+g.Rank()/2), dist.Sum).Wait()
		if first == nil {
			return errors.New("the mismatch was not seen")
		}
		wire, begin := g.Stats().WireBytes(), time.Now()
		y := tensor.New(r.Device, tensor.Float32, 9000)
		for i, w := range []dist.Work{g.AllReduce(x, dist.Sum), g.Broadcast(x, 0), g.Barrier(), g.AllGather(y, x), g.AllReduce(x, dist.BXor),
			g.Send(x, (g.Rank()+1)%3, 0), g.Recv(x, (g.Rank()+1)%3, 0), g.Batch(func(*dist.Batch) {}), g.With().Barrier()} {
			if err := w.Wait(); !same2(err, first) {
				return fmt.Errorf("call %d after %v: %v", i, first, err)
			}
		}
		g.Abort(errBoom)
		if err := g.Err(); !same2(err, first) {
			return fmt.Errorf("after Abort: %w", err)
		}
		if took := time.Since(begin); took > 9*time.Millisecond+slack || g.Stats().WireBytes() != wire {
			return fmt.Errorf("calls after a failure took %v, moved %d bytes", took, g.Stats().WireBytes()-wire)
		}
		return nil
	})
}

// same2 reports whether two ranks, or two calls, got the same failure.
func same2(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() }

// waitHostCancelled: ctx ends the wait, not the operation.
func (s *suite) waitHostCancelled(t *testing.T) {
	cancelled := make(chan struct{})
	s.ok(t, 2, func(r *dist.Rank) error {
		x := filled(r.World, tensor.Float32, 5000, func(int) float64 { return 1 })
		if r.World.Rank() == 1 {
			<-cancelled
			return r.World.AllReduce(x, dist.Sum).Wait()
		}
		come := sync.OnceFunc(func() { close(cancelled) })
		defer come() // also if a network fault is noticed before ctx ends
		w := r.World.AllReduce(x, dist.Sum)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := w.WaitHost(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("cancelled wait: %w", err)
		}
		if took := time.Since(begin); took > 30*time.Millisecond+slack {
			return fmt.Errorf("cancelled wait took %v", took)
		}
		come()
		if err := w.Wait(); err != nil {
			return err
		}
		return holds("allreduce", x, func(int) float64 { return 2 })
	})
}

// algorithms: unknown names and different choices are errors.
func (s *suite) algorithms(t *testing.T) {
	var known string
	s.fails(t, 24, 2, 0, 500*time.Millisecond, []string{`unknown algorithm "foo"; this engine has: `}, func(r *dist.Rank) error {
		err := r.World.With(dist.Algo("foo")).Barrier().Wait()
		if r.World.Rank() == 0 && err != nil {
			_, names, _ := strings.Cut(err.Error(), "has: ")
			known, _, _ = strings.Cut(names, ",")
		}
		return err
	})
	require.NotEmpty(t, known)
	s.fails(t, 24, 2, 0, 500*time.Millisecond, []string{known + `" `, `(rank 0) vs "`, `(rank 1)`}, func(r *dist.Rank) error {
		opts := []dist.Option{dist.Name("x")}
		if r.World.Rank() == 0 {
			opts = append(opts, dist.Algo("allreduce:"+known))
		}
		return r.World.With(opts...).AllReduce(tensor.New(r.Device, tensor.Float32, 5), dist.Sum).Wait()
	})
}

// oneGroupTwice: two goroutines in one group get an error; there is no data race.
func (s *suite) oneGroupTwice(t *testing.T) {
	s.fails(t, 49, 2, 0, time.Second, []string{"two goroutines use group world at once"}, func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			<-time.After(time.Millisecond) // by then the peer is inside Wait, or will be: both must be errors
		}
		started, second := make(chan struct{}), make(chan error, 1)
		go func() {
			<-started
			for {
				if err := r.World.Barrier().Wait(); err != nil {
					second <- err
					return
				}
			}
		}()
		close(started)
		for {
			if err := r.World.Barrier().Wait(); err != nil {
				<-second
				return err
			}
		}
	})
}
