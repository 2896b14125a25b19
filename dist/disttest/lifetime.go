package disttest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// lifetimes checks which memory may be used by whom, and when.
func (s *suite) lifetimes(t *testing.T) {
	t.Run("OldWork", s.oldWork)
	t.Run("AbortLeavesBuffersAlone", s.abortLeavesBuffersAlone)
	t.Run("BorrowedUntilDone", s.borrowedUntilDone)
	t.Run("Skew", s.skew)
}

// oldWork: a Work can be asked at any later time. Waiting twice works, and so does the zero Work.
func (s *suite) oldWork(t *testing.T) {
	ops := 320
	if s.long() {
		ops = 2200 * 32 // more than 16 bits
	}
	s.ok(t, 2, func(r *dist.Rank) error {
		x := []float64{1}
		old := r.World.AllReduce(tensor.FromSlice(x, 1), dist.Sum)
		for i := range ops {
			if w := r.World.Barrier(); i%32 == 31 { // one after the other would wait for messages, not for numbers
				OK(w.Wait())
			}
		}
		for _, w := range []dist.Work{old, old, {}} {
			if err := w.Wait(); err != nil || !w.Done() || !w.Pending().Done() {
				return fmt.Errorf("an old Work: %w, done %v", err, w.Done())
			}
		}
		if x[0] != 2 {
			return fmt.Errorf("an old sum is %v", x[0])
		}
		return nil
	})
}

var seed = maphash.MakeSeed()

// abortLeavesBuffersAlone: a rank aborts in the middle of a large all-reduce. When Wait has returned, no peer writes into the buffers any
// more.
func (s *suite) abortLeavesBuffersAlone(t *testing.T) {
	if s.long() {
		abortEach(t, s.start, 12, 16<<20) // filling 64 MiB takes longer than the rest of the test
		abortEach(t, s.start, 450, 1<<20)
	} else {
		abortEach(t, s.start, 15, 1<<18)
	}
}

// abortEach aborts all-reduces of count elements, each in a group of its own, on 2 and on 3 ranks.
func abortEach(t *testing.T, start Start, seeds, count int) {
	var caught atomic.Int64
	for _, n := range []int{2, 3} {
		out := newCrossings(seeds, n)
		require.NoError(t, start(t, n, quiet(0), func(r *dist.Rank) error {
			data := filled(r.World, tensor.Float32, count, func(i int) float64 { return float64(r.World.Rank() + i%3) })
			x := tensor.New(r.Device, tensor.Float32, count)
			for k := range seeds {
				tensor.Copy(x, data)
				g := r.World.With()
				if err := r.World.Barrier().Wait(); err != nil {
					return out[k].cross(err)
				}
				err := abortOnce(g, x, k)
				if err != nil && strings.Contains(err.Error(), errBoom.Error()) {
					caught.Add(1)
					err = nil
				}
				before := maphash.Bytes(seed, bytesOf(x))
				OK(out[k].cross(err))
				if after := maphash.Bytes(seed, bytesOf(x)); after != before { // the Wait of every peer has returned: late writes have happened by now
					return fmt.Errorf("seed %d: rank %d was written to after Wait", k, g.Rank())
				}
				OK(g.Close())
			}
			return nil
		}))
	}
	assert.Positive(t, caught.Load(), "no abort came in time")
	t.Logf("%d aborts, seen in the middle by %d ranks", 2*seeds, caught.Load())
}

// abortOnce sums x over a group that one rank aborts after some steps, and returns the error of Wait.
func abortOnce(g *dist.Group, x tensor.Tensor, k int) error {
	w := g.AllReduce(x, dist.Sum)
	if g.Rank() == k%g.Size() {
		rng := rand.New(rand.NewPCG(uint64(k), 0))
		for range rng.IntN(40) {
			w.Done() // one step for each call
		}
		g.Abort(errBoom)
	}
	return w.Wait()
}

// borrowedUntilDone: memory of an operation in flight is marked, and Settle waits for the operation.
func (s *suite) borrowedUntilDone(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		for _, count := range []int{10, 100_000} {
			x := filled(r.World, tensor.Float32, count, func(int) float64 { return 1 })
			w := r.World.AllReduce(x, dist.Sum)
			if tensor.Raw(x).Settle(); !w.Done() {
				return errors.New("tensor.Settle returned before the operation was over")
			}
			OK(want(w, "allreduce", x, func(int) float64 { return 2 }))
			tape := tensor.NewTape(r.Device)
			y := tape.Input(x).Add(tape.Input(x))
			w = r.World.AllReduce(y, dist.Sum)
			if tape.Reset(); !w.Done() {
				return errors.New("tape.Reset returned before the operation was over")
			}
		}
		return nil
	})
}

// GroupsComeAndGo makes and closes many groups with messages. Then there must be as many goroutines, descriptors and mappings as before.
// It counts those of the whole process, so no other test may run at the same time.
func GroupsComeAndGo(t *testing.T, start Start) {
	groups := 100
	if reliability.Long(t) {
		groups = 1000
	}
	goroutines, before := runtime.NumGoroutine(), holdings()
	require.NoError(t, start(t, 3, quiet(0), func(r *dist.Rank) error {
		for i := range groups {
			g := r.World.With(dist.Name(fmt.Sprint("group ", i)))
			if err := errors.Join(sumIs(g, 1, 3), call{Operation: &around, count: 100}.run(g), g.Close(),
				mustFail("a closed group", g.Barrier().Wait(), "")); err != nil {
				return fmt.Errorf("group %d: %w", i, err)
			}
		}
		return nil
	}))
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "goroutines")
	require.NoError(t, before.again())
}

// skew runs many ranks on few cores with random delays: no step may take 100 times the median.
func (s *suite) skew(t *testing.T) {
	ranks, ops := []int{3}, 100
	if s.long() {
		ranks, ops = []int{2, 3, 16}, 500
	}
	for _, n := range ranks {
		var steps table[[]time.Duration]
		s.ok(t, n, func(r *dist.Rank) error {
			rng := rand.New(rand.NewPCG(3, uint64(r.World.Rank())))
			var took []time.Duration
			for i := range ops {
				<-time.After(time.Duration(rng.IntN(2000)) * time.Microsecond)
				begin := time.Now()
				if err := sumIs(r.World, float64(i), float64(n*i)); err != nil {
					return fmt.Errorf("step %d: %w", i, err)
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

// held is the resources of the process.
type held struct{ goroutines, files, mappings, heap int }

func holdings() held {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	h := held{goroutines: runtime.NumGoroutine(), heap: int(m.HeapAlloc)}
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.files = len(names)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		h.mappings = bytes.Count(maps, []byte("\n"))
	}
	return h
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d mappings, heap %d KiB", h.goroutines, h.files, h.mappings, h.heap>>10)
}

// compare returns an error if later has more, apart from what is normal at a moment: a goroutine or two that end, mappings of threads and
// of the heap.
func (h held) compare(later held) error {
	if later.goroutines > h.goroutines+8 || later.files > h.files+4 || later.mappings > h.mappings+40 || later.heap > h.heap+h.heap/2+(8<<20) {
		return fmt.Errorf("something leaks: %v before, %v later", h, later)
	}
	return nil
}

// again waits until the process has no more than before: what was just closed may take a moment.
func (h held) again() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := h.compare(holdings())
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}
