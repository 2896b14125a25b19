package dist_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// TestAtEnd: the function that was registered last is called first, and once. Groups still work then, and operations that it leaves in
// flight are finished.
func TestAtEnd(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	note := func(s string) func(context.Context) error {
		return func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, s)
			return nil
		}
	}
	x := []*[]float32{{1}, {2}}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		if r.World.Rank() == 0 {
			r.AtEnd(note("first"))
			r.World.AtEnd(note("second"))
		}
		r.AtEnd(func(ctx context.Context) error {
			r.World.AllReduce(tensor.FromSlice(*x[r.World.Rank()], 1), dist.Sum) //discard: Run waits for it
			return ctx.Err()
		})
		return nil
	}))
	require.Equal(t, []string{"second", "first"}, calls)
	require.Equal(t, []*[]float32{{3}, {3}}, x)
}

// TestAtEndFails: Run returns errors and panics of these functions together with the error of the rank's function, which comes first. All
// of them are called.
func TestAtEndFails(t *testing.T) {
	one, two, three := errors.New("one"), errors.New("two"), errors.New("three")
	for _, own := range []error{nil, one} {
		err := dist.Run(t.Context(), dist.Config{Ranks: 1}, func(_ context.Context, r *dist.Rank) error {
			r.AtEnd(func(context.Context) error { return two })
			r.AtEnd(func(context.Context) error { panic(three) })
			return own
		})
		require.ErrorIs(t, err, two)
		require.ErrorIs(t, err, three)
		if own != nil {
			require.Regexp(t, "^rank 0: one\n", err.Error())
		}
	}
}

// TestAtEndTime: if the rank's function fails, background work has half the timeout. If the job has been ended already, it has no time.
func TestAtEndTime(t *testing.T) {
	wrong := errors.New("wrong")
	err := dist.Run(t.Context(), dist.Config{Ranks: 1, Timeout: 20 * time.Millisecond}, func(_ context.Context, r *dist.Rank) error {
		r.AtEnd(func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		return wrong
	})
	require.ErrorIs(t, err, wrong)
	err = dist.Run(t.Context(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		r.AtEnd(func(ctx context.Context) error {
			if ctx.Err() == nil {
				return errors.New("the group has failed, and ctx goes on")
			}
			return nil
		})
		r.World.Abort(wrong)
		return r.World.Barrier().Wait()
	})
	require.ErrorIs(t, err, wrong)
	require.NotContains(t, err.Error(), "goes on")
}
