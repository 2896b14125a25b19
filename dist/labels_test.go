package dist_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// A rank's goroutines have its number, in profiles and, from Go 1.27 on, in tracebacks.
func TestLabels(t *testing.T) {
	labels := func() string {
		var all bytes.Buffer
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 1))
		return all.String()
	}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		own := make(chan string)
		go func() { own <- labels() }()
		text := <-own
		label, ok := pprof.Label(ctx, "rank")
		assert.True(t, ok)
		assert.Equal(t, fmt.Sprint(r.World.Rank()), label)
		assert.Contains(t, text, fmt.Sprintf(`{"rank":"%s"}`, label))
		return r.World.Barrier().Wait()
	}))
	// A goroutine that is ending is still in the profile.
	assert.Eventually(t, func() bool { return !strings.Contains(labels(), `{"rank":`) }, 10*time.Second, time.Millisecond)
}

// A goroutine that waits for long has the labels of the operation, and only then.
func TestLabelsOfStuckOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan struct{})
		require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			labels := func() string {
				var all bytes.Buffer
				require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 1))
				return all.String()
			}
			g := r.World.With(dist.Name("late"))
			require.NoError(t, g.Barrier().Wait())
			if r.World.Rank() == 1 {
				want := `{"group":"late", "op":"allreduce", "rank":"0", "seq":"2"}`
				assert.Eventually(t, func() bool { return strings.Contains(labels(), want) }, 20*time.Second, 10*time.Millisecond)
				close(seen)
			}
			x := tensor.FromSlice([]float32{1}, 1)
			err := g.AllReduce(x, dist.Sum).Wait()
			if r.World.Rank() == 0 {
				<-seen // the wait was that long
				assert.NotContains(t, labels(), `"rank":"0", "seq"`)
			}
			return err
		}))
	})
}

func TestNoEngines(t *testing.T) {
	require.ErrorContains(t, dist.RunEngines(t.Context(), dist.Config{}, []backend.Engine{}, nil), "no ranks")
}
