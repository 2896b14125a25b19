package dist_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// unwaited returns the operations for which a program's log says that nobody has waited. fn gets two groups of the same two ranks.
func unwaited(t *testing.T, fn func(g, h *dist.Group, x, y tensor.Tensor) error) []string {
	var log reliability.Log
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		g, h := r.World.With(dist.Name("G")), r.World.With(dist.Name("H"))
		err := fn(g, h, tensor.New(r.Device, tensor.Float32, 8), tensor.New(r.Device, tensor.Float32, 16))
		return errors.Join(err, r.World.Barrier().Wait(), g.Close())
	})
	require.NoError(t, err)
	return regexp.MustCompile(`nobody has waited for [^:]*`).FindAllString(log.String(), -1)
}

// An operation that is dropped is a warning, of one rank, unless another one that is waited for shows that it is over.
func TestUnwaited(t *testing.T) {
	for name, c := range map[string]struct {
		run     func(g, h *dist.Group, x, y tensor.Tensor) error
		warning string // "": none
	}{
		"a later one": {func(g, _ *dist.Group, x, y tensor.Tensor) error {
			return last(g.Broadcast(x, 0), g.AllReduce(y, dist.Sum)).Wait()
		}, ""},
		"an earlier one": {func(g, _ *dist.Group, x, y tensor.Tensor) error {
			w := g.Broadcast(x, 0)
			last(g.AllReduce(y, dist.Sum)) //discard: this is the mistake
			return w.Wait()
		}, "allreduce seq 2 of group G"},
		"one of another group": {func(g, h *dist.Group, x, y tensor.Tensor) error {
			return last(h.Broadcast(x, 0), g.AllReduce(y, dist.Sum)).Wait()
		}, "broadcast seq 1 of group H"},
		"a chain through another group": {func(g, h *dist.Group, x, _ tensor.Tensor) error {
			return last(g.AllReduce(x, dist.Sum), h.AllReduce(x.Range(0, 4), dist.Sum), g.AllReduce(x.Range(0, 2), dist.Sum)).Wait()
		}, ""},
		"after one of the same memory": {func(g, h *dist.Group, x, _ tensor.Tensor) error {
			err := last(g.AllReduce(x, dist.Sum)).Wait()
			h.AllReduce(x, dist.Sum) //discard: this is the mistake
			return err
		}, "allreduce seq 1 of group H"},
		"before many of another group": {func(g, h *dist.Group, x, y tensor.Tensor) error {
			h.AllReduce(x, dist.Sum) //discard: this is the mistake
			for range 2 * backend.Depth {
				if err := g.AllReduce(y, dist.Sum).Wait(); err != nil {
					return err
				}
			}
			return nil
		}, "allreduce seq 1 of group H"},
		"Done": {func(g, _ *dist.Group, x, _ tensor.Tensor) error {
			for w := g.AllReduce(x, dist.Sum); !w.Done(); {
				runtime.Gosched()
			}
			return nil
		}, ""},
		"WaitHost": {func(g, _ *dist.Group, x, _ tensor.Tensor) error {
			return g.AllReduce(x, dist.Sum).WaitHost(context.Background())
		}, ""},
		"Pending": {func(g, _ *dist.Group, x, _ tensor.Tensor) error { return g.AllReduce(x, dist.Sum).Pending().Wait() }, ""},
		"a batch": {func(g, _ *dist.Group, x, y tensor.Tensor) error { return exchange(g, x, y).Wait() }, ""},
		"a dropped batch": {func(g, _ *dist.Group, x, y tensor.Tensor) error {
			exchange(g, x, y) //discard: this is the mistake
			return nil
		}, "(send|recv) seq 1 of group G"},
		"no one": {func(g, _ *dist.Group, _, _ tensor.Tensor) error { return nil }, ""},
	} {
		got := unwaited(t, c.run)
		if c.warning == "" {
			assert.Empty(t, got, name)
		} else if assert.Len(t, got, 1, name) {
			assert.Regexp(t, "^nobody has waited for "+c.warning+"$", got[0], name)
		}
	}
}

// dropsWork waits for an operation of another group only.
func dropsWork(_ context.Context, r *dist.Rank) error {
	r.World.With(dist.Name("G")).AllReduce(tensor.New(r.Device, tensor.Float32, 8), dist.Sum) //discard: this is the mistake
	return r.World.Barrier().Wait()
}

// The warning comes from processes, too, whatever connects them.
func TestUnwaitedProcesses(t *testing.T) {
	for _, env := range engines {
		name, value, _ := strings.Cut(env, "=")
		t.Setenv(name, value)
		for _, text := range processes(t, 2, "unwaited") {
			assert.Equal(t, 1, strings.Count(text, "nobody has waited for allreduce seq 1 of group G"), text)
		}
	}
}

// exchange swaps x with the first half of y of the other rank.
func exchange(g *dist.Group, x, y tensor.Tensor) dist.Work {
	return g.Batch(func(b *dist.Batch) {
		b.Send(x, 1-g.Rank(), 0)
		b.Recv(y.Range(0, 8), 1-g.Rank(), 0)
	})
}

// A kernel may not read what an operation writes that runs. It may read other parts of the memory, and what is only read.
func TestUsedTooEarly(t *testing.T) {
	require.NoError(t, run(2, func(r *dist.Rank) error {
		g, late := r.World, r.World.With(dist.Name("late"))
		x, y := tensor.New(r.Device, tensor.Float32, 8), tensor.New(r.Device, tensor.Float32, 8)
		begin := func() []dist.Work {
			return []dist.Work{late.AllReduce(x.Range(0, 4), dist.Sum), late.Reduce(y.Range(0, 4), dist.Sum, 1)}
		}
		if g.Rank() == 1 { // begins when rank 0 has tried
			return errors.Join(g.Barrier().Wait(), last(begin()...).Wait())
		}
		works, tape := begin(), tensor.NewTape(r.Device)
		read := func(x tensor.Tensor) error { return tensor.Try(func() { tape.Input(x).Exp() }) }
		assert.ErrorContains(t, read(x.Range(2, 4)), "allreduce seq 1 of group late still uses this memory")
		assert.NoError(t, errors.Join(read(x.Range(4, 8)), read(y)))
		return errors.Join(g.Barrier().Wait(), last(works...).Wait(), read(x))
	}))
}
