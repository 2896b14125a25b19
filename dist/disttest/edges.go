package disttest

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// edges are rare cases.
func (s *suite) edges(t *testing.T) {
	t.Run("AbortWithoutCause", s.abortWithoutCause)
	t.Run("AbortIsAnError", s.abortIsAnError)
	t.Run("BatchOfOthers", s.batchOfOthers)
	t.Run("CountsThatOverflow", s.countsThatOverflow)
	t.Run("RecvAnyIsFair", s.recvAnyIsFair)
	t.Run("CloseKeepsTheCause", s.closeKeepsTheCause)
	t.Run("SplitByExtremeKeys", s.splitByExtremeKeys)
	t.Run("GrandchildrenFail", s.grandchildrenFail)
	t.Run("ClosedGroupHasNoChildren", s.closedGroupHasNoChildren)
	t.Run("TimeoutBesideTraffic", s.timeoutBesideTraffic)
}

// abortWithoutCause: a cancelled operation returns an error, also without a cause.
func (s *suite) abortWithoutCause(t *testing.T) {
	s.fails(t, 21, 2, 0, time.Second, []string{"aborted"}, func(r *dist.Rank) error {
		p := call{Operation: operation("allreduce"), count: 50_000}.on(r.World).issue()
		if r.World.Rank() == 0 {
			r.World.Abort(nil)
		}
		return p.finish()
	})
}

// abortIsAnError: every rank gets a *dist.Error that says who aborted which group.
func (s *suite) abortIsAnError(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			r.World.Abort(errBoom)
		}
		var e *dist.Error
		if err := r.World.Barrier().Wait(); !errors.As(err, &e) || e.Rank != 1 || e.Group != "world" {
			return fmt.Errorf("after Abort by rank 1: %w", err)
		}
		return nil
	})
}

// batchOfOthers: a batch may hold a Work that is over, the zero Work, and one of another group that fails.
func (s *suite) batchOfOthers(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		old := r.World.Barrier()
		OK(waitAll(old, r.World.Batch(func(b *dist.Batch) { b.Add(old, dist.Work{}, r.World.Barrier()) })))
		wrong := r.World.With().AllReduce(tensor.New(r.Device, tensor.Float32, 10+r.World.Rank()), dist.Sum)
		if err := r.World.Batch(func(b *dist.Batch) { b.Add(wrong) }).Wait(); !same2(err, wrong.Wait()) {
			return fmt.Errorf("a batch with a failed part: %w", err)
		}
		return nil
	})
}

// countsThatOverflow: counts whose sum wraps around to the right number of rows are an error, not a wild access.
func (s *suite) countsThatOverflow(t *testing.T) {
	const wide = math.MaxInt
	s.fails(t, 11, 3, 0, time.Second, []string{"alltoallv", "counts sum to 9223372036854775807 rows"}, func(r *dist.Rank) error {
		counts := [][]int{{wide, wide, 6}, {wide, 6, wide}, {6, wide, wide}}[r.World.Rank()]
		x, y := tensor.New(r.Device, tensor.Uint8, 4), tensor.New(r.Device, tensor.Uint8, 4)
		return r.World.AllToAllV(y, x, counts, counts).Wait()
	})
}

// recvAnyIsFair: a rank that sends many messages does not stop messages of the others.
func (s *suite) recvAnyIsFair(t *testing.T) {
	const each = 20
	s.ok(t, 3, func(r *dist.Rank) error {
		g, with := r.World, [3]*dist.Group{}
		for peer := 1; peer < 3; peer++ {
			color := 0
			if g.Rank() != 0 && g.Rank() != peer {
				color = -1
			}
			var err error
			if with[peer], err = g.Split(color, 0); err != nil {
				return err
			}
		}
		if g.Rank() > 0 {
			var last dist.Work
			for range each {
				last = g.Send(zeros(g, tensor.Float64, 1), 0, 0)
			}
			// Here Send does not wait for its Recv, and the messages arrive before the barrier.
			if e := with[g.Rank()].Engine(); e == "tcp" || e == "mpi" {
				OK(last.Wait())
			}
			return waitAll(g.Barrier(), last)
		}
		OK(g.Barrier().Wait())
		x, from := tensor.New(r.Device, tensor.Float64, 1), [3]int{}
		for range 2 * each {
			peer := Must(g.RecvAny(x, 0))
			from[peer]++
			if d := from[1] - from[2]; d > each/2 || d < -each/2 {
				return fmt.Errorf("messages taken from each rank: %v", from)
			}
		}
		return nil
	})
}

// closeKeepsTheCause: a failed group still returns its first failure after Close.
func (s *suite) closeKeepsTheCause(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		g := r.World.With()
		w := g.AllReduce(tensor.New(r.Device, tensor.Float32, 10+g.Rank()), dist.Sum)
		first := w.Wait()
		OK(g.Close())
		for _, w := range []dist.Work{w, g.Barrier(), g.Send(zeros(g, tensor.Float32, 1), 1-g.Rank(), 0)} {
			if err := w.Wait(); !same2(err, first) {
				return fmt.Errorf("after Close: %v, before: %v", err, first)
			}
		}
		return nil
	})
}

// splitByExtremeKeys: keys are compared, not subtracted.
func (s *suite) splitByExtremeKeys(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		g := Must(r.World.Split(0, []int{math.MaxInt, -2, 0}[r.World.Rank()]))
		if got := fmt.Sprint(g.Ranks()); got != "[1 2 0]" {
			return fmt.Errorf("order of ranks: %s", got)
		}
		return g.Barrier().Wait()
	})
}

// grandchildrenFail: a failure also reaches groups whose parent group is closed.
func (s *suite) grandchildrenFail(t *testing.T) {
	closed := newCrossing(2)
	s.ok(t, 2, func(r *dist.Rank) error {
		parent := r.World.With()
		child := parent.With()
		OK(closed.cross(errors.Join(child.Barrier().Wait(), parent.Close(), r.World.Barrier().Wait())))
		if r.World.Rank() == 1 {
			r.World.Abort(errBoom)
		}
		return errors.Join(mustFail("the world", r.World.Barrier().Wait(), ""), mustFail("the child", child.Barrier().Wait(), ""))
	})
}

// closedGroupHasNoChildren: a closed group could not tell new groups of a failure.
func (s *suite) closedGroupHasNoChildren(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		g := r.World.With()
		return errors.Join(g.Close(), mustFail("a group of a closed one", g.With().Barrier().Wait(), ""))
	})
}

// timeoutBesideTraffic: the timeout of a group ends a wait, also if other groups of the rank are busy all the time.
func (s *suite) timeoutBesideTraffic(t *testing.T) {
	const timeout = 50 * time.Millisecond
	var over atomic.Bool
	var took time.Duration
	require.NoError(t, s.start(t, 2, quiet(0), func(r *dist.Rank) error {
		lost, busy := r.World.With(dist.Timeout(timeout)), r.World.With()
		me := r.World.Rank()
		if me == 0 {
			go func() {
				begin := time.Now()
				_ = lost.Barrier().Wait() // rank 1 never comes
				took = time.Since(begin)
				over.Store(true)
			}()
		}
		for begin := time.Now(); ; {
			stop := []float64{number(me == 0 && (over.Load() || time.Since(begin) > 5*time.Second))}
			if err := busy.SumFloats(stop); err != nil || stop[0] > 0 {
				return err
			}
		}
	}))
	assert.True(t, over.Load(), "the wait never ended")
	assert.Less(t, took, timeout+slack)
	t.Logf("a timeout of %v took %v", timeout, took)
}
