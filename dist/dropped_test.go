//go:build unix

package dist_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// dropped makes many groups, uses them, and keeps only one and its child.
func dropped(ctx context.Context, r *dist.Rank) error {
	kept := r.World.With(dist.Name("kept")).With(dist.Name("child")) // nobody has its parent
	x := tensor.New(r.Device, tensor.Float32, 8)
	for range 12 {
		g := r.World.With()
		h, err := g.Split(0, 0)
		if err != nil {
			return err
		}
		send, recv := h.Send, h.Recv
		if h.Rank() == 1 {
			send, recv = recv, send
		}
		for _, w := range []dist.Work{g.AllReduce(x, dist.Sum), h.Barrier(), send(x, 1-h.Rank(), 0), recv(x, 1-h.Rank(), 0)} {
			if err := w.Wait(); err != nil {
				return err
			}
		}
		runtime.GC()
	}
	// What stays: the world, the child, its parent, and the last group of this loop.
	for open, rounds := 0, 0; open != 4 || rounds < 8; rounds++ {
		cleaned := make(chan struct{}) // a cleanup may run long after GC: without a wait, With would come before it in each round
		runtime.AddCleanup(new([8]*int), func(c chan struct{}) { close(c) }, cleaned)
		runtime.GC()
		<-cleaned
		r.World.With()
		if open = dist.OpenGroups(r); open < 4 || ctx.Err() != nil {
			return fmt.Errorf("%d groups are open, not 4", open)
		}
	}
	return kept.AllReduce(x, dist.Sum).Wait()
}

// A group that the program drops without Close is closed, on every engine; one that it has, and what that was made from, is not. The short
// form has goroutines.
func TestDroppedGroups(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, run(2, func(r *dist.Rank) error { return dropped(ctx, r) }))
	if !reliability.Long(t) {
		return
	}
	for _, env := range engines {
		name, value, _ := strings.Cut(env, "=")
		t.Setenv(name, value)
		for _, text := range processes(t, 2, "dropped") {
			assert.Empty(t, text, env)
		}
	}
}

func TestLongDroppedGroups(t *testing.T) { reliability.AsLong(t, TestDroppedGroups) }
