package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
)

// rank is one rank of a test: an engine, a device, and a group of all ranks.
type rank struct {
	t       *testing.T
	me, n   int
	control *control
	engine  *nccl.Engine
	dev     *cuda.Device
	compute *cuda.Stream
	pool    *cuda.Pool
	world   backend.Backend
	seq     uint64
}

// control is a control engine that refuses to open a group.
type control struct {
	*local.Engine
	refused uint64 // its ID
}

func (c *control) Open(s backend.Spec) (backend.Backend, error) {
	if s.ID == c.refused {
		return nil, errors.New("the control engine refuses")
	}
	return c.Engine.Open(s)
}

const timeout = 20 * time.Second // of operations, unless a test sets another one

// ranks runs fn on n ranks, goroutines with a device each.
func ranks(t *testing.T, n int, cfg emu.Config, fn func(r *rank) error) {
	t.Helper()
	hangingRanks(t, n, cfg, fn)
	nothingLeft(t)
}

// hangingRanks is ranks, but an engine may give things back later.
func hangingRanks(t *testing.T, n int, cfg emu.Config, fn func(r *rank) error) {
	t.Helper()
	cfg.Devices = 4
	driver := emu.Start(t, cfg)
	hub := local.NewHub(n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		dev, err := driver.Open(i)
		require.NoError(t, err)
		r := &rank{t: t, me: i, n: n, dev: dev}
		wg.Go(func() { errs[i] = r.run(hub, fn) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// nothingLeft requires that everything was freed.
func nothingLeft(t *testing.T) {
	t.Helper()
	assert.Zero(t, emu.CountNCCL().Open, "communicators")
	assert.Zero(t, emu.CountNCCL().Reductions, "reductions of PreMulSum")
	assert.Empty(t, emu.Leaks())
}

// nothingLeftSoon waits until everything was freed.
func nothingLeftSoon(t *testing.T) {
	t.Helper()
	assert.Eventually(t, func() bool { return emu.CountNCCL().Open == 0 && emu.Leaks() == "" }, 20*time.Second, time.Millisecond)
	nothingLeft(t)
}

func (r *rank) run(hub *local.Hub, fn func(r *rank) error) (err error) {
	if err := r.dev.Lock(); err != nil {
		return err
	}
	defer r.dev.Unlock()
	if r.compute, err = r.dev.NewStream("compute", 0); err != nil {
		return err
	}
	r.pool = r.dev.NewPool("test")
	r.control = &control{Engine: hub.Engine(r.me).(*local.Engine)}
	if r.engine, err = nccl.New(nccl.Config{Control: r.control, Device: r.dev, Compute: r.compute}); err != nil {
		return err
	}
	if r.world, err = r.open("world", timeout); err != nil {
		return err
	}
	err = fn(r)
	return errors.Join(err, r.world.(backend.Closer).Close(), r.engine.Close(), r.pool.Close(), r.compute.Close())
}

func (r *rank) open(name string, timeout time.Duration) (backend.Backend, error) {
	return r.engine.Open(r.spec(name, timeout))
}

func (r *rank) spec(name string, timeout time.Duration) backend.Spec {
	s := backend.Spec{ID: backend.HashString(name), Gen: 1, Name: name, Rank: r.me, Timeout: timeout}
	for i := range r.n {
		s.Ranks = append(s.Ranks, i)
	}
	return s
}

// upload puts x into new device memory.
func (r *rank) upload(x []float32) (backend.Mem, error) {
	m := backend.Mem{Bytes: 4 * len(x), Device: true}
	p, err := r.pool.Alloc(r.compute, max(m.Bytes, 4))
	if err != nil {
		return m, err
	}
	m.Ptr = unsafe.Add(tensor.Ptr(nil), uintptr(p))
	return m, r.compute.Upload(p, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), m.Bytes))
}

// download reads device memory, in the order of the compute stream, and frees it.
func (r *rank) download(m backend.Mem) ([]float32, error) {
	x := make([]float32, m.Bytes/4)
	p := cuda.Ptr(uintptr(m.Ptr))
	err := r.compute.Download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), m.Bytes), p)
	return x, errors.Join(err, r.pool.Free(p))
}

// issue gives the next operation of the world group to the engine.
func (r *rank) issue(op backend.Op) error {
	r.seq++
	op.Seq, op.DType = r.seq, tensor.Float32
	op.Shape = tensor.Shape{DType: op.DType, Dims: []int{op.Count}}
	return r.world.Issue(&op)
}

// order makes the compute stream wait for all operations, without a wait of the host.
func (r *rank) order() error {
	return r.until(func() (bool, error) {
		_, err := r.world.Progress()
		return r.world.(backend.DeviceUser).Order(r.seq), err
	})
}

// wait waits on the host.
func (r *rank) wait() error {
	return r.until(func() (bool, error) {
		done, err := r.world.Progress()
		return done == r.seq, err
	})
}

func (r *rank) until(over func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if ok, err := over(); ok || err != nil {
			return err
		}
		if err := r.world.Park(ctx, r.seq); err != nil {
			return fmt.Errorf("rank %d: operation %d hangs: %w", r.me, r.seq, err)
		}
	}
}

// does runs an operation from src to new memory of len(want), and compares the result. nil means no input or output.
func (r *rank) does(op backend.Op, src, want []float32) error {
	var err error
	if src != nil {
		if op.Src, err = r.upload(src); err != nil {
			return err
		}
	}
	if want != nil {
		if op.Dst, err = r.upload(make([]float32, len(want))); err != nil {
			return err
		}
	}
	if err := errors.Join(r.issue(op), r.order()); err != nil {
		return err
	}
	if want != nil {
		got, err := r.download(op.Dst)
		if err != nil {
			return err
		}
		assert.Equal(r.t, want, got, "%v on rank %d", op.Kind, r.me)
	}
	if src != nil {
		return r.pool.Free(cuda.Ptr(uintptr(op.Src.Ptr)))
	}
	return nil
}
