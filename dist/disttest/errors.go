package disttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	s.beside(t)
	timeout := time.Second // long enough for the barrier before it on a busy machine
	if s.full {
		timeout = 2 * time.Second
	}
	s.tooLate(t, 1, timeout, "reduce", []int{1, 2, 3}, "reduce seq 2", "ranks 1-3 did not arrive")
}

// monitored: a MonitoredBarrier names all missing ranks, on every engine.
func (s *suite) monitored(t *testing.T) {
	s.beside(t)
	s.tooLate(t, 30, time.Second, "monitoredbarrier", []int{1, 3}, "monitoredbarrier seq 2", "ranks 1, 3 did not arrive")
}

// tooLate does an operation on 4 ranks, of which some come when it is too late.
func (s *suite) tooLate(t *testing.T, row int, timeout time.Duration, name string, late []int, texts ...string) {
	over := make(chan struct{})
	s.fails(t, row, 4, timeout, timeout+200*time.Millisecond, texts, func(r *dist.Rank) error {
		if me := r.World.Rank(); me == 0 {
			defer close(over)
		} else if slices.Contains(late, me) {
			s.await(over, r.World)
		}
		return call{Operation: operation(name), count: 10}.run(r.World)
	})
}

// mismatch: if ranks call different operations with one sequence number, all get an error that says who called what.
func (s *suite) mismatch(t *testing.T) {
	with := func(name string, c call) call {
		c.Operation = operation(name)
		return c
	}
	allReduce := func(count int) call { return with("allreduce", call{count: count}) }
	broadcast := func(root int) call { return with("broadcast", call{count: 10, root: root}) }
	barrier := with("barrier", call{})
	up := &Operation{form: messages, pairs: func(_ *call, from, to int) bool { return from < to }}
	rows := func(parts ...int) func(from, to int) int { return func(from, to int) int { return parts[2*from+to] } }
	var mistakes []mistake
	for _, c := range []struct {
		name   string
		row    int
		texts  []string
		a, b   call // of the two ranks
		groups func(r *dist.Rank) *dist.Group
	}{
		{"Kinds", 2, []string{"allreduce seq 2", "broadcast seq 2", "rank 0", "rank 1"}, allReduce(10), broadcast(0), nil},
		{"Counts", 3, []string{"count 10 (rank 0) vs 12 (rank 1)", "float32[10]", "float32[12]"}, allReduce(10), allReduce(12), nil},
		{"LargeCounts", 3, []string{"count 50000 (rank 0) vs 50001 (rank 1)"}, allReduce(50_000), allReduce(50_001), nil},
		{"Types", 4, []string{"float32", "bfloat16"}, allReduce(10), with("allreduce", call{count: 10, dtype: tensor.BFloat16}), nil},
		{"Reductions", 5, []string{"op sum (rank 0) vs max (rank 1)"}, allReduce(10), with("allreduce", call{count: 10, red: redMax}), nil},
		{"Roots", 6, []string{"root 0 (rank 0) vs 1 (rank 1)"}, broadcast(0), broadcast(1), nil},
		{"AllToAllV", 7, []string{"rank 0 sends 3 rows to rank 1, which expects 4"}, with("alltoallv", call{width: 2, rows: rows(1, 3, 2, 1)}),
			with("alltoallv", call{width: 2, rows: rows(1, 4, 2, 1)}), nil},
		{"AllGatherV", 8, []string{"counts[1] = 3 (rank 0) vs 4 (rank 1)"}, with("allgatherv", call{rows: rows(2, 3)}),
			with("allgatherv", call{rows: rows(2, 4)}), nil},
		{"Rows", 8, []string{"rows of 4 elements (rank 0) vs 3 (rank 1)"}, with("allgatherv", call{width: 4, rows: rows(2, 3)}),
			with("allgatherv", call{width: 3, rows: rows(2, 3)}), nil},
		{"RowsOfSums", 8, []string{"rows of 3 elements (rank 0) vs 4 (rank 1)"}, with("reducescatterv", call{width: 3, rows: rows(2, 300)}),
			with("reducescatterv", call{width: 4, rows: rows(2, 300)}), nil},
		{"Groups", 2, []string{"group left (rank 0) vs group right (rank 1)"}, barrier, barrier, func(r *dist.Rank) *dist.Group {
			return r.World.With(dist.Name([]string{"left", "right"}[r.World.Rank()]))
		}},
		{"Meshes", 2, []string{"group mesh a=2,b=1 (rank 0) vs group mesh a=1,b=2 (rank 1)"}, barrier, barrier, func(r *dist.Rank) *dist.Group {
			m, _ := r.Mesh([]string{"a=2,b=1", "a=1,b=2"}[r.World.Rank()])
			return m.Group("a", "b")
		}},
		{"Tags", 2, []string{"tag 4 (rank 0) vs 5 (rank 1)"},
			call{Operation: up, count: 1, root: 4}, call{Operation: up, count: 1, root: 5}, nil},
	} {
		mistakes = append(mistakes, mistake{c.name, c.row, 500 * time.Millisecond, c.texts, func(r *dist.Rank) error {
			g := r.World
			if c.groups != nil {
				g = c.groups(r)
			}
			return []call{c.a, c.b}[r.World.Rank()].run(g)
		}})
	}
	s.failEach(t, 2, mistakes)
	t.Run("ThreeRanks", func(t *testing.T) {
		s.fails(t, 3, 3, 0, 500*time.Millisecond, []string{"count 10", "12", "rank 2"}, func(r *dist.Rank) error {
			return sum(r.World, tensor.Float32, 10+r.World.Rank()/2*2)
		})
	})
}

// arguments: a mistake that one rank can see by itself is an error at once, and nothing is sent. The group fails, so that the peers do
// not wait for an operation that never comes.
func (s *suite) arguments(t *testing.T) {
	var mistakes []mistake
	add := func(name string, row int, texts []string, start func(g *dist.Group, x tensor.Tensor) dist.Work) {
		mistakes = append(mistakes, mistake{name, row, 500 * time.Millisecond, texts, func(r *dist.Rank) error {
			if r.World.Rank() == 1 {
				return sum(r.World, tensor.Float32, 9) // waits for rank 0
			}
			err := start(r.World, zeros(r.World, tensor.Float32, 8)).Wait()
			if wire := r.World.Stats().WireBytes(); wire != 0 {
				return fmt.Errorf("%w; %d bytes were sent", err, wire)
			}
			return err
		}})
	}
	for _, o := range collectives() {
		wrong := func(name string, row int, c call, texts ...string) {
			if c.Operation = o; !slices.Contains([]string{"allreduce", "broadcast"}, o.Name) {
				name += " of " + o.Name
			}
			add(name, row, append(texts, o.Name), func(g *dist.Group, _ tensor.Tensor) dist.Work { return c.on(g).issue().works[0] })
		}
		if o.reduces {
			wrong("AvgOfInts", 10, call{count: 4, red: redAvg, dtype: tensor.Int32}, "avg", "int32")
			wrong("BitsOfFloats", 10, call{count: 4, red: redBXor}, "bxor", "float32")
		}
		if o.rooted {
			wrong("NegativeRoot", 11, call{count: 4, root: -1}, "root -1", "0 to 1")
			wrong("RootTooLarge", 11, call{count: 4, root: 2}, "root 2", "0 to 1")
		}
	}
	add("Indivisible", 9, []string{"reducescatter", "float32[7]", "ReduceScatterV"}, func(g *dist.Group, x tensor.Tensor) dist.Work {
		return g.ReduceScatter(x.Range(0, 3), x.Range(0, 7), dist.Sum)
	})
	add("SendToSelf", 11, []string{"send", "this rank itself"}, func(g *dist.Group, x tensor.Tensor) dist.Work {
		return g.Send(x, g.Rank(), 0)
	})
	add("PeerTooLarge", 11, []string{"recv", "peer 2", "0 to 1"}, func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Recv(x, 2, 0) })
	add("Overlap", 12, []string{"overlap", "allgather"}, func(g *dist.Group, x tensor.Tensor) dist.Work {
		return g.AllGather(x.Range(0, 4), x.Range(1, 3))
	})
	add("AllToAllInPlace", 12, []string{"overlap", "alltoall"}, func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllToAll(x, x) })
	add("Sizes", 12, []string{"allgather", "float32[3]", "float32[5]"}, func(g *dist.Group, x tensor.Tensor) dist.Work {
		return g.AllGather(x.Range(3, 8), x.Range(0, 3))
	})
	add("Rows", 12, []string{"allgatherv", "sum to 5 rows"}, func(g *dist.Group, x tensor.Tensor) dist.Work {
		return g.AllGatherV(x.Range(4, 8), x.Range(0, 2), []int{2, 3})
	})
	s.failEach(t, 2, mistakes)
}

var errBoom = errors.New("boom")

// end ends one of n ranks while the others wait. It checks the time of a row, and returns the error of the job.
func (s *suite) end(t *testing.T, row, n, who int, fn, wait func(r *dist.Rank) error) error {
	var begin time.Time
	var engine string
	err := s.start(t, n, quiet(0), func(r *dist.Rank) error {
		if r.World.Rank() != who {
			return wait(r)
		}
		begin, engine = time.Now(), r.Engine()
		return fn(r)
	})
	reliability.Took(t, row, engine, time.Second, time.Since(begin))
	require.Error(t, err)
	return err
}

// rankFails: Run returns the error of the rank that failed, not an echo of it.
func (s *suite) rankFails(t *testing.T) {
	err := s.end(t, 16, 4, 1, func(*dist.Rank) error { return errBoom }, func(r *dist.Rank) error { return sum(r.World, tensor.Float32, 10) })
	require.ErrorIs(t, err, errBoom)
	assert.True(t, strings.HasPrefix(err.Error(), "rank 1: boom"), err.Error())
	assert.Contains(t, err.Error(), "3 ranks failed because of it")
}

// rankPanics: a panic, or runtime.Goexit as testify's require calls it, ends the job with the stack.
func (s *suite) rankPanics(t *testing.T) {
	for name, die := range map[string]func(){
		"panic: out of luck": func() { panic("out of luck") }, "runtime.Goexit": runtime.Goexit,
	} {
		err := s.end(t, 17, 4, 3, func(*dist.Rank) error {
			die()
			return nil
		}, func(r *dist.Rank) error { return r.World.Barrier().Wait() })
		assert.Contains(t, err.Error(), "rank 3: "+name, name)
		assert.Contains(t, err.Error(), "rankPanics", name) // the stack
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
	require.ErrorContains(t, err, "allreduce seq 1 of group world was never waited for")
	require.ErrorContains(t, err, "count 10 (rank 0) vs 11 (rank 1)")
}

// firstCauseStays: every later call returns the first failure, unchanged and at once, and moves no bytes.
func (s *suite) firstCauseStays(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		g := r.World
		first := sum(g, tensor.Float32, 10+g.Rank()/2)
		OK(mustFail("a mismatch", first, " vs "))
		wire, begin := g.Stats().WireBytes(), time.Now()
		works := []dist.Work{g.AllReduce(zeros(g, tensor.Float32, 9), dist.BXor), g.Batch(func(*dist.Batch) {}), g.With().Barrier()}
		for _, o := range append(Operations(), around) {
			works = append(works, call{Operation: &o, count: 3000}.on(g).issue().works...)
		}
		for i, w := range works {
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
		c := call{Operation: operation("allreduce"), count: 5000}
		if r.World.Rank() == 1 {
			<-cancelled
			return c.run(r.World)
		}
		come := sync.OnceFunc(func() { close(cancelled) })
		defer come() // also if a network fault is noticed before ctx ends
		p := c.on(r.World).issue()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		begin := time.Now()
		err := p.works[0].WaitHost(ctx)
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 30*time.Millisecond+slack {
			return fmt.Errorf("cancelled wait after %v: %w", took, err)
		}
		come()
		return p.finish()
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
		return sum(r.World.With(opts...), tensor.Float32, 5)
	})
}

// oneGroupTwice: two goroutines in one group get an error; there is no data race.
func (s *suite) oneGroupTwice(t *testing.T) {
	s.fails(t, 49, 2, 0, time.Second, []string{"two goroutines use group world at once"}, func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			<-time.After(time.Millisecond) // by then the peer is inside Wait, or will be: both must be errors
		}
		use := func() error { return untilError(func() error { return r.World.Barrier().Wait() }) }
		second := make(chan error, 1)
		go func() { second <- use() }()
		err := use()
		<-second
		return err
	})
}
