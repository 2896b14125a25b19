package disttest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// lifetimes checks who may touch which memory when.
func (s *suite) lifetimes(t *testing.T) {
	t.Run("OldWork", s.oldWork)
	t.Run("AbortLeavesBuffersAlone", s.abortLeavesBuffersAlone)
	t.Run("BorrowedUntilDone", s.borrowedUntilDone)
	t.Run("Skew", s.skew)
}

// oldWork: a Work answers for ever; waiting twice and the zero Work are fine.
func (s *suite) oldWork(t *testing.T) {
	ops := 5_000
	if Long() {
		ops = 1_000_000
	}
	s.ok(t, 2, func(r *dist.Rank) error {
		x := []float64{1}
		old := r.World.AllReduce(tensor.FromSlice(x, 1), dist.Sum)
		for range ops {
			if err := r.World.Barrier().Wait(); err != nil {
				return err
			}
		}
		for _, w := range []dist.Work{old, old, {}} {
			if err := w.Wait(); err != nil || !w.Done() || !w.Pending().Done() {
				return fmt.Errorf("an old Work: %w, done %v", err, w.Done())
			}
		}
		return same("allreduce", x, []float64{2})
	})
}

var seed = maphash.MakeSeed()

// abortLeavesBuffersAlone: a rank aborts in the middle of a large all-reduce; when Wait has returned, no peer writes into
// the buffers any more.
func (s *suite) abortLeavesBuffersAlone(t *testing.T) {
	seeds, mib := 30, 1
	if Long() {
		seeds, mib = 1000, 64
	}
	hit := 0
	for k := range seeds {
		if k == 100 {
			mib = 4 // filling 64 MiB takes longer than all the rest
		}
		if abortOnce(t, s.start, 2+k%2, k, mib<<18) {
			hit++
		}
	}
	assert.Positive(t, hit, "no abort came in time")
	t.Logf("%d of %d aborts came in the middle", hit, seeds)
}

// abortOnce reports whether the abort came before the operation was over.
func abortOnce(t *testing.T, start Start, n, k, count int) bool {
	var sums table[[2]uint64]
	var out sync.WaitGroup
	out.Add(n)
	err := start(t, n, quiet(0), func(r *dist.Rank) error {
		x := filled(r, tensor.Float32, count, func(i int) float64 { return float64(r.World.Rank() + i%3) })
		if err := r.World.Barrier().Wait(); err != nil {
			out.Done() // the abort overtook the barrier
			return err
		}
		w := r.World.AllReduce(x, dist.Sum)
		if r.World.Rank() == k%n {
			rng := rand.New(rand.NewPCG(uint64(k), 0))
			for range rng.IntN(40) {
				w.Done() // a step each
			}
			r.World.Abort(errBoom)
		}
		err := w.Wait()
		mine := [2]uint64{maphash.Bytes(seed, x.Bytes())}
		out.Done()
		out.Wait() // every peer is out of Wait: whatever it still wrote is there now
		mine[1] = maphash.Bytes(seed, x.Bytes())
		sums.put(r.World.Rank(), mine)
		return err
	})
	if err != nil {
		require.ErrorContains(t, err, errBoom.Error())
	}
	for rank, m := range sums.rows {
		require.Equal(t, m[0], m[1], "seed %d: rank %d was written to after Wait", k, rank)
	}
	return err != nil
}

// borrowedUntilDone: memory of an operation in flight is marked, and Settle waits for the operation.
func (s *suite) borrowedUntilDone(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		for _, count := range []int{10, 100_000} {
			x := filled(r, tensor.Float32, count, func(int) float64 { return 1 })
			w := r.World.AllReduce(x, dist.Sum)
			tensor.Settle(x)
			if !w.Done() {
				return errors.New("tensor.Settle returned before the operation was over")
			}
			if err := same("allreduce", tensor.Floats(x), list(count, func(int) float64 { return 2 })); err != nil {
				return err
			}
			tape := tensor.NewTape(r.Device)
			y := tape.Input(x).Add(tape.Input(x))
			w = r.World.AllReduce(y, dist.Sum)
			tape.Reset()
			if !w.Done() {
				return errors.New("tape.Reset returned before the operation was over")
			}
		}
		return nil
	})
}

// GroupsComeAndGo makes and closes many groups with messages; goroutines, descriptors and mappings go back to where they
// began. It counts those of the whole process: no other test may run at the same time.
func GroupsComeAndGo(t *testing.T, start Start) {
	groups := 100
	if Long() {
		groups = 1000
	}
	goroutines, before := runtime.NumGoroutine(), holdings()
	require.NoError(t, start(t, 3, quiet(0), func(r *dist.Rank) error {
		for i := range groups {
			g := r.World.With(dist.Name(fmt.Sprint("group ", i)))
			x := []float64{1}
			if err := g.SumFloats(x); err != nil || x[0] != 3 {
				return fmt.Errorf("group %d: %v, %w", i, x, err)
			}
			out, in := tensor.New(r.Device, tensor.Float32, 100), tensor.New(r.Device, tensor.Float32, 100)
			sent := g.Send(out, (g.Rank()+1)%3, 0)
			if err := g.Recv(in, (g.Rank()+2)%3, 0).Wait(); err != nil {
				return err
			}
			if err := sent.Wait(); err != nil {
				return err
			}
			if err := g.Close(); err != nil {
				return err
			}
			if err := g.Barrier().Wait(); err == nil {
				return errors.New("a closed group works")
			}
		}
		return nil
	}))
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "goroutines")
	require.NoError(t, before.again())
}

// skew runs many ranks on few cores with random delays: no step may take 100 times the median.
func (s *suite) skew(t *testing.T) {
	ranks, ops := []int{3}, 150
	if Long() {
		ranks, ops = []int{2, 3, 16}, 1500
	}
	for _, n := range ranks {
		var steps table[[]time.Duration]
		s.ok(t, n, func(r *dist.Rank) error {
			rng := rand.New(rand.NewPCG(3, uint64(r.World.Rank())))
			var took []time.Duration
			for i := range ops {
				<-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond)
				begin := time.Now()
				x := []float64{float64(i)}
				if err := r.World.SumFloats(x); err != nil {
					return err
				}
				if x[0] != float64(n*i) {
					return fmt.Errorf("step %d: %v", i, x)
				}
				took = append(took, time.Since(begin))
			}
			steps.put(r.World.Rank(), took)
			return nil
		})
		for rank, took := range steps.rows {
			slices.Sort(took)
			median, worst := took[len(took)/2], took[len(took)-1]
			assert.Less(t, worst, 100*max(median, time.Millisecond)+slack, "%d ranks, rank %d", n, rank)
		}
	}
}
