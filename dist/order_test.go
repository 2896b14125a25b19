package dist_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// last returns the last of several operations, in the order in which they were issued.
func last(works ...dist.Work) dist.Work { return works[len(works)-1] }

// If ranks issue operations on the same memory on two groups in different orders, they wait for each other. The timeout says what waits,
// and why.
func TestDependentInOtherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := dist.Config{Ranks: 2, Log: io.Discard, Timeout: time.Minute}
		err := dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
			x := tensor.New(r.Device, tensor.Float32, 100)
			a, b := r.World.With(dist.Name("a")), r.World.With(dist.Name("b"))
			if r.World.Rank() == 1 {
				a, b = b, a
			}
			return last(a.AllReduce(x, dist.Sum), b.AllReduce(x, dist.Sum)).Wait()
		})
		require.ErrorContains(t, err, "did not arrive within 1m0s; what group")
		require.ErrorContains(t, err, "is to do next waits for it: it touches the same memory")
	})
}

// If an operation fails, an operation that waits for it fails with the same error, also in another group, on all its members. Groups that
// do not depend on it continue.
func TestDependentFails(t *testing.T) {
	boom := errors.New("boom")
	require.NoError(t, run(2, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 100)
		a, b := r.World.With(dist.Name("a")), r.World.With(dist.Name("b"))
		var first dist.Work
		if r.World.Rank() == 0 {
			first = a.AllReduce(x, dist.Sum)
			disttest.OK(r.World.Send(tensor.FromSlice([]float32{1}, 1), 1, 0).Wait())
		} else {
			disttest.OK(r.World.Recv(x.Range(0, 1), 0, 0).Wait())
			a.Abort(boom)
		}
		assert.ErrorContains(t, last(first, b.AllReduce(x, dist.Sum)).Wait(), "boom", "rank %d", r.World.Rank())
		assert.ErrorContains(t, a.Err(), "boom")
		return r.World.Barrier().Wait()
	}))
}

// The same holds for an operation that a failed group did not begin, however many others it did not begin after it. When the program has
// seen the error, it can use the memory again.
func TestDependentOnWhatNeverBegan(t *testing.T) {
	require.NoError(t, run(2, func(r *dist.Rank) error {
		x, y := tensor.New(r.Device, tensor.Float32, 100), tensor.New(r.Device, tensor.Float32, 1)
		for _, more := range []int{0, 1, 100} {
			a, b := r.World.With(dist.Name("a")), r.World.With(dist.Name("b"))
			a.Abort(errors.New("boom"))
			disttest.OK(r.World.Barrier().Wait())
			assert.ErrorContains(t, a.AllReduce(x, dist.Sum).Wait(), "boom")
			assert.NoError(t, b.AllReduce(x, dist.Sum).Wait(), "told")
			lost := a.AllReduce(x, dist.Sum)
			for range more {
				lost = last(lost, a.AllReduce(y, dist.Sum))
			}
			assert.ErrorContains(t, last(lost, b.AllReduce(x, dist.Sum)).Wait(), "boom", "%d more", more)
			assert.ErrorContains(t, a.Err(), "boom")
			assert.ErrorContains(t, b.Err(), "boom")
		}
		return r.World.Barrier().Wait()
	}))
}

// One goroutine of a rank waits for an operation, and another one will overwrite its result in another group: both wake up.
func TestDependentOfTwoGoroutines(t *testing.T) {
	require.NoError(t, run(2, func(r *dist.Rank) error {
		a, b := r.World.With(dist.Name("a")), r.World.With(dist.Name("b"))
		for range 200 {
			x := tensor.FromSlice([]float32{1, 1}, 2)
			first := a.AllReduce(x, dist.Sum)
			var errs [2]error
			var wg sync.WaitGroup
			wg.Go(func() { errs[0] = first.Wait() })
			wg.Go(func() { errs[1] = b.AllReduce(x, dist.Sum).Wait() })
			wg.Wait()
			disttest.OK(errors.Join(errs[:]...))
			assert.Equal(t, []float64{4, 4}, tensor.Floats(x))
		}
		return nil
	}))
}

// A chain of operations that depend on each other allocates nothing.
func TestDependentAllocatesNothing(t *testing.T) {
	fewest := ^uint64(0)
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		x, twin := tensor.New(r.Device, tensor.Float32, 1000), r.World.With()
		for range 10 {
			before := mallocs()
			for range 50 {
				disttest.OK(last(r.World.AllReduce(x, dist.Avg), twin.AllReduce(x, dist.Avg), r.World.AllReduce(x, dist.Avg)).Wait())
			}
			disttest.OK(r.World.Barrier().Wait())
			if r.World.Rank() == 0 {
				fewest = min(fewest, mallocs()-before)
			}
			disttest.OK(r.World.Barrier().Wait())
		}
		return nil
	}))
	require.Zero(t, fewest)
}

// BenchmarkIssue issues operations on different memory while so many are in flight, and a chain on the same memory.
func BenchmarkIssue(b *testing.B) {
	for name, apart := range map[string]int{"independent": 1, "chain": 0} {
		b.Run(name, func(b *testing.B) {
			err := dist.Run(context.Background(), dist.Config{Ranks: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
				x := tensor.New(r.Device, tensor.Float32, 64)
				var last dist.Work
				for i := range b.N {
					k := i % 64 * apart
					last = r.World.AllReduce(x.Range(k, k+1), dist.Sum)
				}
				return last.Wait()
			})
			require.NoError(b, err)
		})
	}
}
