package nccl_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// blocked runs fn on three ranks. When rank 1 calls block, a call of the driver hangs on its device until all other ranks are
// over, or rank 1 is, too.
func blocked(t *testing.T, call string, until int, fn func(r *dist.Rank, block func()) error) ([]error, time.Duration) {
	emu.Only(t, "a driver does not hang when it is asked to")
	defer nccl.SetBounds(100 * time.Millisecond)()
	var mu sync.Mutex
	over, open := 0, func() {}
	return failures(t, 3, time.Second, func(r *dist.Rank, begin func()) error {
		err := fn(r, func() {
			mu.Lock()
			defer mu.Unlock()
			if begin(); r.World.Rank() == 1 {
				open = emu.Block(call, 1)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		if over++; over == until {
			open()
		}
		return err
	})
}

// failed waits until another rank has failed the group.
func failed(g *dist.Group) error {
	for g.Err() == nil {
		<-time.After(time.Millisecond) // a core is for those that it waits for
	}
	return g.Err()
}

// The driver of one rank does not say what has run. The timeouts of all its groups go on, and the errors say so.
func TestDriverThatDoesNotAnswer(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	names := []string{"one", "two"}
	errs, took := blocked(t, "cuEventQuery", 3, func(r *dist.Rank, block func()) (err error) {
		var groups []*dist.Group
		for _, name := range names {
			groups = append(groups, r.World.With(dist.Name(name)))
		}
		sum := func(g *dist.Group) dist.Work {
			return g.AllReduce(tensor.New(r.Device, tensor.Float32, 10), dist.Sum)
		}
		for _, g := range groups {
			err = errors.Join(err, sum(g).WaitHost(context.Background()))
		}
		if err != nil {
			return err
		}
		block()
		for _, g := range groups {
			err = errors.Join(err, sum(g).Wait()) // the device waits, not the host
		}
		for _, g := range groups {
			err = errors.Join(err, failed(g))
		}
		return err
	})
	for rank, err := range errs {
		for _, name := range names {
			assert.Regexp(t, `rank 1: allreduce seq 2 of group `+name+`: no progress within 1s: on the device, as far as is known: `+
				`the driver has not answered for \S+, shape float32\[10\]`, err.Error(), "rank %d", rank)
		}
	}
	assert.Less(t, took, 11500*time.Millisecond+reliability.Slack)
}

// The driver of one rank hangs as its host marks the compute stream. That host hangs, and the others end: the rank's watcher
// tells them why.
func TestDriverThatHangsTheHost(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	errs, took := blocked(t, "cuEventRecord", 2, func(r *dist.Rank, block func()) error {
		if err := reduce(r, 10, dist.Sum); err != nil {
			return err
		}
		x := tensor.New(r.Device, tensor.Float32, 10)
		tensor.Floats(x) // the device is idle
		block()
		if r.World.Rank() != 1 {
			return failed(r.World)
		}
		return r.World.AllReduce(x, dist.Sum).WaitHost(context.Background())
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "rank 1: allreduce seq 2 of group world: ", "rank %d", rank)
		assert.ErrorContains(t, err, "within 1s: in a call of the driver that marks the compute stream, shape float32[10]", "rank %d", rank)
	}
	assert.Less(t, took, 1500*time.Millisecond+reliability.Slack)
}

// An engine is closed while the driver does not answer: Close says so after a bounded time. When the driver answers again, all
// is given back.
func TestCloseWhileTheDriverHangs(t *testing.T) {
	emu.Only(t, "a driver does not hang when it is asked to")
	defer nccl.SetBounds(100 * time.Millisecond)()
	hangingRanks(t, 1, emu.Config{}, func(r *rank) error {
		m, err := r.upload([]float32{1})
		if err != nil {
			return err
		}
		op := backend.Op{Kind: backend.AllReduce, Count: 1, Src: m, Dst: m}
		if err := errors.Join(r.issue(op), r.wait()); err != nil {
			return err
		}
		open := emu.Block("cuEventQuery", 0)
		if err := errors.Join(r.issue(op), r.order()); err != nil {
			return err
		}
		begin := time.Now()
		assert.NoError(t, r.world.(backend.Closer).Close())
		assert.ErrorContains(t, r.engine.Close(), "a call of the driver or of NCCL does not end within 100ms")
		assert.Less(t, time.Since(begin), 100*time.Millisecond+reliability.Slack)
		assert.EqualValues(t, 1, emu.CountNCCL().Open)
		open()
		return r.pool.Free(cuda.Ptr(uintptr(m.Ptr)))
	})
	nothingLeftSoon(t)
}
