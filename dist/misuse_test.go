package dist_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// misuse makes a mistake on the rank of a job of one rank, or on rank 0 of several, while the others wait in a barrier.
func misuse(t *testing.T, n int, want string, mistake func(r *dist.Rank, x tensor.Tensor) dist.Work) {
	t.Helper()
	begin := time.Now()
	require.ErrorContains(t, run(n, func(r *dist.Rank) error {
		if r.World.Rank() > 0 {
			return r.World.Barrier().Wait()
		}
		return mistake(r, tensor.New(r.Device, tensor.Float32, 2*n)).Wait()
	}), want)
	assert.Less(t, time.Since(begin), reliability.Slack)
}

// A zero Tensor is an error of the operation, and not a panic of the tensor.
func TestZeroTensor(t *testing.T) {
	none := tensor.Tensor{}
	for want, call := range map[string]func(g *dist.Group, x tensor.Tensor) dist.Work{
		"broadcast seq 1 of group world: output": func(g *dist.Group, _ tensor.Tensor) dist.Work { return g.Broadcast(none, 0) },
		"allreduce seq 1 of group world: output": func(g *dist.Group, _ tensor.Tensor) dist.Work { return g.AllReduce(none, dist.Sum) },
		"reduce seq 1 of group world: input":     func(g *dist.Group, _ tensor.Tensor) dist.Work { return g.Reduce(none, dist.Sum, 0) },
		"gather seq 1 of group world: output":    func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Gather(none, x, 0) },
		"gather seq 1 of group world: input":     func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Gather(x, none, 0) },
		"scatter seq 1 of group world: input":    func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Scatter(x, none, 0) },
		"scatter seq 1 of group world: output":   func(g *dist.Group, x tensor.Tensor) dist.Work { return g.Scatter(none, x, 1) },
		"allgather seq 1 of group world: output": func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllGather(none, x) },
		"reducescatter seq 1 of group world: input": func(g *dist.Group, x tensor.Tensor) dist.Work {
			return g.ReduceScatter(x, none, dist.Sum)
		},
		"alltoall seq 1 of group world: input":    func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllToAll(x, none) },
		"allgatherv seq 1 of group world: output": func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllGatherV(none, x, []int{4, 0}) },
		"reducescatterv seq 1 of group world: input": func(g *dist.Group, x tensor.Tensor) dist.Work {
			return g.ReduceScatterV(x, none, []int{4, 0}, dist.Sum)
		},
		"alltoallv seq 1 of group world: input": func(g *dist.Group, x tensor.Tensor) dist.Work {
			return g.AllToAllV(x, none, []int{4, 0}, []int{4, 0})
		},
		"send seq 1 of group world: input":  func(g *dist.Group, _ tensor.Tensor) dist.Work { return g.Send(none, 1, 0) },
		"recv seq 1 of group world: output": func(g *dist.Group, _ tensor.Tensor) dist.Work { return g.Recv(none, 1, 0) },
	} {
		misuse(t, 2, want+" is the zero Tensor", func(r *dist.Rank, x tensor.Tensor) dist.Work { return call(r.World, x) })
	}
	misuse(t, 2, "allreduce seq 1 of group world: output has been released", func(r *dist.Rank, x tensor.Tensor) dist.Work {
		tape := tensor.NewTape(r.Device)
		old := tape.Input(x).Exp()
		tape.Reset()
		return r.World.AllReduce(old, dist.Sum)
	})
}

// In a group of one rank, nobody can send.
func TestRecvAnyAlone(t *testing.T) {
	misuse(t, 1, "recv seq 1 of group world: group world has no other rank to receive from", func(r *dist.Rank, x tensor.Tensor) dist.Work {
		peer, err := r.World.RecvAny(x, 0)
		assert.Equal(t, -1, peer)
		assert.Error(t, err)
		return r.World.Barrier()
	})
}

// If two ranks send each other more messages than can be in flight, before they receive any, both wait. The error says what to do.
func TestHeadOnSends(t *testing.T) {
	const messages = 100
	cfg := dist.Config{Ranks: 2, Threads: 1, Timeout: 200 * time.Millisecond, Log: io.Discard}
	err := dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		x, y, peer := tensor.New(r.Device, tensor.Float32, messages), tensor.New(r.Device, tensor.Float32, messages), 1-r.World.Rank()
		var works []dist.Work
		for i := range messages {
			works = append(works, r.World.Send(x.Range(i, i+1), peer, 0))
		}
		for i := range messages {
			works = append(works, r.World.Recv(y.Range(i, i+1), peer, 0))
		}
		for _, w := range works {
			disttest.OK(w.Wait())
		}
		return nil
	})
	assert.Regexp(t,
		`rank \d: send seq 1 of group world: rank \d did not arrive within 200ms; 64 operations of this lane are in flight, so the next send waits for `+
			`the first: wait for some, or receive, between them`, err)
}

// A batch may have 64 messages to a peer and 64 from it. One more of either is an error at once.
func TestBatchLimits(t *testing.T) {
	batch := func(r *dist.Rank, x tensor.Tensor, sends, recvs int) dist.Work {
		return r.World.Batch(func(b *dist.Batch) {
			for range sends {
				b.Send(x.Range(0, 1), 1-r.World.Rank(), 0)
			}
			for i := range recvs {
				b.Recv(x.Range(1+i, 2+i), 1-r.World.Rank(), 0)
			}
		})
	}
	require.NoError(t, run(2, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 65)
		tensor.Data[float32](x)[0] = float32(r.World.Rank())
		err := batch(r, x, 64, 64).Wait()
		assert.EqualValues(t, 1-r.World.Rank(), tensor.Floats(x)[64])
		return err
	}))
	misuse(t, 2, "send seq 65 of group world: a batch has more than 64 sends with rank 1", func(r *dist.Rank, _ tensor.Tensor) dist.Work {
		return batch(r, tensor.New(r.Device, tensor.Float32, 66), 65, 65)
	})
	misuse(t, 2, "recv seq 65 of group world: a batch has more than 64 recvs with rank 1", func(r *dist.Rank, _ tensor.Tensor) dist.Work {
		return batch(r, tensor.New(r.Device, tensor.Float32, 66), 64, 65)
	})
}

// If messages of a batch overlap, and one of them is a Recv, one would have to wait for the other. Two Sends of the same memory need not
// wait.
func TestBatchOverlaps(t *testing.T) {
	misuse(t, 2, "recv seq 1 of group world: float32[2] overlaps another message of the batch", func(r *dist.Rank, x tensor.Tensor) dist.Work {
		return r.World.Batch(func(b *dist.Batch) {
			b.Send(x.Range(0, 3), 1, 0)
			b.Send(x.Range(1, 4), 1, 0)
			b.Recv(x.Range(2, 4), 1, 0)
		})
	})
	misuse(t, 2, "send seq 1 of group world: float32[1] overlaps another message of the batch", func(r *dist.Rank, x tensor.Tensor) dist.Work {
		return r.World.Batch(func(b *dist.Batch) {
			b.Recv(x, 1, 0)
			b.Send(x.Range(3, 4), 1, 0)
		})
	})
}

// A batch keeps the memory of a message that is over. A later message would be taken for one that overlaps it, if it got this memory.
func TestBatchKeepsMemory(t *testing.T) {
	cfg := dist.Config{Ranks: 2, Device: tensortest.Remotes(t)}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		x := tensor.NewFor(memory.Gradients, r.Device, tensor.Float32, 1000)
		if r.World.Rank() == 1 {
			return errors.Join(r.World.Recv(x, 0, 0).Wait(), r.World.Recv(x, 0, 0).Wait())
		}
		return r.World.Batch(func(b *dist.Batch) {
			b.Send(x, 1, 0)
			x = tensor.New(r.Device, tensor.Float32, 1000)
			assert.NoError(t, r.World.Send(x, 1, 0).Wait()) // the first one is over
			for range 20 {
				runtime.GC()
			}
			assert.Equal(t, 4000, r.Device.Memory().Of(memory.Gradients).Live)
		}).Wait()
	}))
}

// full is a log on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What could not be printed is an error at the end, on rank 0 alone: the training goes on.
func TestLogOnFullDisk(t *testing.T) {
	var ended atomic.Int32
	err := dist.Run(t.Context(), dist.Config{Ranks: 3, Log: full{}}, func(_ context.Context, r *dist.Rank) error {
		r.Logf("step 1")
		err := r.World.Barrier().Wait()
		r.Logf("step 2")
		ended.Add(1)
		return err
	})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.EqualError(t, err, "rank 0: dist: Logf: no space left on device")
	require.EqualValues(t, 3, ended.Load())
}

// Settings without a meaning are refused, not replaced.
func TestSenselessConfig(t *testing.T) {
	for want, cfg := range map[string]dist.Config{
		"asks for -1 ranks": {Ranks: -1},
		"asks for 0 ranks":  {Exact: true},
		"asks for 5000 ranks in this process, at most 4096": {Ranks: 5000},
		"Threads is -1":    {Threads: -1},
		"Timeout -1s":      {Timeout: -time.Second},
		"JoinTimeout -1ns": {JoinTimeout: -1},
		"Trace is -5":      {Trace: -5},
	} {
		assert.ErrorContains(t, dist.Run(t.Context(), cfg, func(context.Context, *dist.Rank) error { return nil }), want)
	}
	t.Setenv("RINGO_SHM", "foo")
	assert.ErrorContains(t, run(1, func(*dist.Rank) error { return nil }), "RINGO_SHM=foo (ringo): neither 0 nor 1")
}

// The error about an algorithm over messages does not say that it is unknown, but that goroutine ranks have no messages.
func TestAlgorithmOfProcesses(t *testing.T) {
	t.Setenv("RINGO_ALGO", "allreduce:ring")
	err := run(2, func(r *dist.Rank) error { return r.World.Barrier().Wait() })
	assert.ErrorContains(t, err, `algorithm "ring" is for ranks that are processes; the engine of these ranks, goroutines, has: direct`)
	assert.NotContains(t, err.Error(), "unknown")
}
