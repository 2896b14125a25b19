package nccl_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// rank is one rank of a test, on a device of its own.
type rank struct {
	t      *testing.T
	lib    *nccl.Lib
	dev    *cuda.Device
	stream *cuda.Stream
	pool   *cuda.Pool
	comm   *nccl.Comm
	me     int
}

// ranks runs fn on n ranks in a communicator, each on a thread with its device.
func ranks(t *testing.T, n int, fn func(r *rank) error) {
	driver := emu.Start(t, emu.Config{Devices: n})
	lib, err := nccl.Load()
	require.NoError(t, err)
	id, err := lib.UniqueID()
	require.NoError(t, err)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		dev, err := driver.Open(i)
		require.NoError(t, err)
		r := &rank{t: t, lib: lib, dev: dev, me: i}
		wg.Go(func() { errs[i] = r.run(n, &id, fn) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	assert.Zero(t, emu.CountNCCL().Open)
}

func (r *rank) run(n int, id *nccl.ID, fn func(r *rank) error) (err error) {
	if err := r.dev.Lock(); err != nil {
		return err
	}
	defer r.dev.Unlock()
	if r.stream, err = r.dev.NewStream("comm", 0); err != nil {
		return err
	}
	defer r.stream.Close()
	r.pool = r.dev.NewPool("test")
	defer r.pool.Close()
	r.comm = r.lib.NewComm()
	if err := r.lib.Err("ncclCommInitRankConfig", r.comm.Init(n, id, r.me)); err != nil {
		return err
	}
	if err := fn(r); err != nil {
		return err
	}
	if r.comm.Open() {
		return r.lib.Err("ncclCommDestroy", r.comm.Destroy())
	}
	return nil
}

func (r *rank) upload(x []float32) (cuda.Ptr, error) {
	p, err := r.pool.Alloc(r.stream, 4*len(x))
	if err != nil {
		return 0, err
	}
	return p, r.stream.Upload(p, unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)))
}

func (r *rank) download(p cuda.Ptr, n int) ([]float32, error) {
	x := make([]float32, n)
	return x, r.stream.Download(unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*n), p)
}

// does queues an operation on src and dst, and compares dst with want.
func (r *rank) does(call string, src, want []float32, do func(src, dst cuda.Ptr) nccl.Result) error {
	in, err := r.upload(src)
	if err != nil {
		return err
	}
	defer r.pool.Free(in)
	out, err := r.upload(make([]float32, len(want)))
	if err != nil {
		return err
	}
	defer r.pool.Free(out)
	if err := r.lib.Err(call, do(in, out)); err != nil {
		return err
	}
	got, err := r.download(out, len(want))
	if assert.NoError(r.t, err) {
		assert.Equal(r.t, want, got, "%s on rank %d", call, r.me)
	}
	return err
}

func TestEveryCall(t *testing.T) {
	ranks(t, 2, func(r *rank) error {
		me, c, s := float32(r.me), r.comm, r.stream.Handle()
		const d = nccl.Float32
		x := []float32{1 + me, 2 + me, 3 + me, 4 + me}
		zero := make([]float32, 2)
		root := func(v []float32) []float32 {
			if r.me == 1 {
				return v
			}
			return zero
		}
		return errors.Join(
			r.does("sum", x, []float32{3, 5, 7, 9}, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, nccl.Sum, s) }),
			r.does("max", x, []float32{2, 3, 4, 5}, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, nccl.Max, s) }),
			r.does("min", x, []float32{1, 2, 3, 4}, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, nccl.Min, s) }),
			r.does("prod", x, []float32{2, 6, 12, 20}, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, nccl.Prod, s) }),
			r.does("avg", x, []float32{1.5, 2.5, 3.5, 4.5}, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, nccl.Avg, s) }),
			r.does("premulsum", x, []float32{5, 8, 11, 14}, func(i, o cuda.Ptr) nccl.Result {
				factor := 1 + me
				op, res := c.PreMulSum(unsafe.Pointer(&factor), d)
				if res != nccl.Success {
					return res
				}
				if res = c.AllReduce(i, o, 4, d, op, s); res != nccl.Success {
					return res
				}
				return c.DestroyOp(op)
			}),
			r.does("reduce", x[:2], root([]float32{3, 5}), func(i, o cuda.Ptr) nccl.Result { return c.Reduce(i, o, 2, d, nccl.Sum, 1, s) }),
			r.does("broadcast", x[:2], []float32{2, 3}, func(i, o cuda.Ptr) nccl.Result { return c.Broadcast(i, o, 2, d, 1, s) }),
			r.does("all-gather", x[:1], []float32{1, 2}, func(i, o cuda.Ptr) nccl.Result { return c.AllGather(i, o, 1, d, s) }),
			r.does("reduce-scatter", x[:2], []float32{3 + 2*me},
				func(i, o cuda.Ptr) nccl.Result { return c.ReduceScatter(i, o, 1, d, nccl.Sum, s) }),
			r.does("all-to-all", x[:2], []float32{1 + me, 2 + me}, func(i, o cuda.Ptr) nccl.Result { return c.AllToAll(i, o, 1, d, s) }),
			r.does("group", x[:1], []float32{2 - me}, func(i, o cuda.Ptr) nccl.Result {
				r.lib.GroupStart()
				a, b := c.Send(i, 1, d, 1-r.me, s), c.Recv(o, 1, d, 1-r.me, s)
				return max(a, b, r.lib.GroupEnd())
			}),
		)
	})
}

// What one GPU can do alone: each call moves this rank's own elements.
// What NCCL calls in place is the one overlap that it defines.
func TestOverlap(t *testing.T) {
	emu.Only(t, "NCCL does not look for it")
	ranks(t, 2, func(r *rank) error {
		p, err := r.upload(make([]float32, 64))
		if err != nil {
			return err
		}
		defer r.pool.Free(p)
		c, s, own := r.comm, r.stream.Handle(), p+cuda.Ptr(32*r.me)
		const d = nccl.Float32
		for i, res := range []nccl.Result{
			c.AllReduce(p, p+4, 8, d, nccl.Sum, s),
			c.AllGather(p+4, p, 8, d, s),
			c.ReduceScatter(p, p+4, 8, d, nccl.Sum, s),
			c.AllToAll(p, p, 8, d, s),
			c.AllReduce(p+2, p+2, 8, d, nccl.Sum, s), // not aligned
		} {
			assert.Equal(r.t, nccl.Result(4), res, "call %d", i) // ncclInvalidArgument
		}
		return errors.Join(r.lib.Err("ncclAllGather", c.AllGather(own, p, 8, d, s)),
			r.lib.Err("ncclReduceScatter", c.ReduceScatter(p, own, 8, d, nccl.Sum, s)))
	})
}

func TestOneRank(t *testing.T) {
	ranks(t, 1, func(r *rank) error {
		c, s := r.comm, r.stream.Handle()
		const d, sum = nccl.Float32, nccl.Sum
		x := []float32{1, 2, 3, 4}
		return errors.Join(
			r.does("sum", x, x, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, sum, s) }),
			r.does("avg", x, x, func(i, o cuda.Ptr) nccl.Result { return c.AllReduce(i, o, 4, d, nccl.Avg, s) }),
			r.does("reduce", x, x, func(i, o cuda.Ptr) nccl.Result { return c.Reduce(i, o, 4, d, sum, 0, s) }),
			r.does("broadcast", x, x, func(i, o cuda.Ptr) nccl.Result { return c.Broadcast(i, o, 4, d, 0, s) }),
			r.does("all-gather", x, x, func(i, o cuda.Ptr) nccl.Result { return c.AllGather(i, o, 4, d, s) }),
			r.does("reduce-scatter", x, x, func(i, o cuda.Ptr) nccl.Result { return c.ReduceScatter(i, o, 4, d, sum, s) }),
			r.does("all-to-all", x, x, func(i, o cuda.Ptr) nccl.Result {
				if !c.HasAllToAll() {
					return c.AllGather(i, o, 4, d, s)
				}
				return c.AllToAll(i, o, 4, d, s)
			}),
			r.does("group", x, x, func(i, o cuda.Ptr) nccl.Result {
				r.lib.GroupStart()
				a, b := c.Send(i, 4, d, 0, s), c.Recv(o, 4, d, 0, s)
				return max(a, b, r.lib.GroupEnd())
			}),
		)
	})
}

// idle is closed: nobody is in a call.
var idle = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// An operation that hangs on the device does so until it is aborted.
func TestAbort(t *testing.T) {
	before := emu.CountNCCL().Aborts
	emu.FailNCCL(0, 1, emu.HangingCall)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	ranks(t, 1, func(r *rank) error {
		p, err := r.upload([]float32{1})
		if err != nil {
			return err
		}
		if err := r.lib.Err("ncclAllReduce", r.comm.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, r.stream.Handle())); err != nil {
			return err
		}
		done, err := r.stream.Done()
		assert.False(r.t, done)
		return errors.Join(err, r.lib.Err("ncclCommAbort", r.comm.Abort(idle)), r.stream.Sync(), r.pool.Free(p))
	})
	assert.Equal(t, before+1, emu.CountNCCL().Aborts)
}

// A call that waits for a rank that does not come, on the host, ends when another thread aborts the communicator, which is
// freed behind it: the emulator ends the process if it is freed before.
func TestAbortFromAnotherThread(t *testing.T) {
	driver := emu.Start(t, emu.Config{})
	emu.Only(t, "it takes two devices")
	lib, err := nccl.Load()
	require.NoError(t, err)
	for call, come := range map[string]int{"ncclCommInitRankConfig": 1, "ncclAllReduce": 2} {
		t.Run(call, func(t *testing.T) {
			id, err := lib.UniqueID()
			require.NoError(t, err)
			var wg sync.WaitGroup
			for me := range come {
				dev, err := driver.Open(me)
				require.NoError(t, err)
				comm, began, over := lib.NewComm(), make(chan struct{}), make(chan struct{})
				wg.Go(func() { // the goroutine of the communicator
					defer close(over)
					require.NoError(t, dev.Lock())
					defer dev.Unlock()
					s, err := dev.NewStream("comm", 0)
					require.NoError(t, err)
					defer s.Close()
					pool := dev.NewPool("test")
					defer pool.Close()
					p, err := pool.Alloc(s, 4)
					require.NoError(t, err)
					defer pool.Free(p)
					if come == 1 {
						close(began)
					}
					res := comm.Init(2, &id, me)
					if come == 2 {
						require.Equal(t, nccl.Success, res)
						close(began)
						if me == 1 {
							return
						}
						res = comm.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, s.Handle())
					}
					assert.ErrorContains(t, lib.Err(call, res),
						"nccl: "+call+": internal error (3); last error of the process: the communicator has been aborted")
				})
				wg.Go(func() {
					<-began
					require.NoError(t, dev.Lock())
					defer dev.Unlock()
					assert.NoError(t, lib.Err("ncclCommAbort", comm.Abort(over)))
				})
			}
			wg.Wait()
			assert.Zero(t, emu.CountNCCL().Open)
		})
	}
}

// A communicator that is destroyed under a call is the end of the process, as it may be with the real library.
func TestDestroyUnderACall(t *testing.T) {
	emu.Only(t, "NCCL may go on with freed memory")
	emu.Start(t, emu.Config{})
	if os.Getenv("RINGO_TEST_NCCL_DESTROY") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDestroyUnderACall$")
		cmd.Env = append(os.Environ(), "RINGO_TEST_NCCL_DESTROY=1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), "rank 0's communicator is freed while a call uses it")
		return
	}
	emu.FailNCCL(0, 1, emu.HangingHost)
	ranks(t, 1, func(r *rank) error {
		p, err := r.upload([]float32{1})
		if err != nil {
			return err
		}
		before := emu.CountNCCL().Launches
		go func() {
			_ = r.dev.Lock()
			r.comm.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, r.stream.Handle())
		}()
		for emu.CountNCCL().Launches == before {
			runtime.Gosched()
		}
		r.comm.Destroy()
		return nil
	})
}

// NCCL keeps one text of the last error. It may be of another thread and communicator, and the error says so.
func TestLastErrorIsOfTheProcess(t *testing.T) {
	emu.Only(t, "it takes a call that fails")
	emu.Start(t, emu.Config{})
	lib, err := nccl.Load()
	require.NoError(t, err)
	id, err := lib.UniqueID()
	require.NoError(t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // its thread ends with it
		lib.NewComm().Init(2, &id, 5)
	}()
	<-over
	err = lib.Err("ncclCommGetAsyncError", 6)
	assert.EqualError(t, err, "nccl: ncclCommGetAsyncError: remote process exited or there was a network error (6); "+
		"last error of the process: rank 5 of 2 (NCCL_DEBUG=INFO tells more)")
}

func TestErrorsAreReadable(t *testing.T) {
	emu.Only(t, "NCCL does not look at addresses")
	ranks(t, 1, func(r *rank) error {
		err := r.lib.Err("ncclAllReduce", r.comm.AllReduce(64, 64, 1, nccl.Float32, nccl.Sum, r.stream.Handle()))
		assert.EqualError(r.t, err, "nccl: ncclAllReduce: invalid argument (4); last error of the process: "+
			"sendbuff 0x40 is not 4 bytes of device memory (NCCL_DEBUG=INFO tells more)")
		return nil
	})
	emu.FailNCCL(0, 1, emu.AsyncError)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	ranks(t, 1, func(r *rank) error {
		p, err := r.upload([]float32{1})
		if err != nil {
			return err
		}
		err = r.lib.Err("ncclAllReduce", r.comm.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, r.stream.Handle()))
		for begin := time.Now(); err == nil && time.Since(begin) < 20*time.Second; { // it comes when the call has begun
			err = r.lib.Err("ncclCommGetAsyncError", r.comm.AsyncError())
		}
		assert.ErrorContains(r.t, err, "remote process exited")
		r.comm.Abort(idle)
		return r.pool.Free(p)
	})
}

// Two ranks on one device are an error, as in the real library.
func TestInitErrors(t *testing.T) {
	emu.Only(t, "NCCL takes device 0 where no context is current")
	driver := emu.Start(t, emu.Config{})
	lib, err := nccl.Load()
	require.NoError(t, err)
	id, err := lib.UniqueID()
	require.NoError(t, err)
	require.ErrorContains(t, lib.Err("ncclCommInitRankConfig", lib.NewComm().Init(2, &id, 0)), "no context is current")
	dev, err := driver.Open(0)
	require.NoError(t, err)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for me := range errs {
		wg.Go(func() {
			require.NoError(t, dev.Lock())
			defer dev.Unlock()
			c := lib.NewComm()
			errs[me] = lib.Err("ncclCommInitRankConfig", c.Init(2, &id, me))
			c.Abort(idle)
		})
	}
	wg.Wait()
	require.Error(t, errs[0])
	require.Error(t, errs[1])
	require.ErrorContains(t, errors.Join(errs...), "Duplicate GPU")
}

func TestCallsDoNotAllocate(t *testing.T) {
	if reliability.Racing {
		t.Skip("the race detector makes pools forget")
	}
	ranks(t, 1, func(r *rank) error {
		p, err := r.upload([]float32{1})
		if err != nil {
			return err
		}
		assert.Zero(r.t, testing.AllocsPerRun(100, func() {
			r.comm.AllReduce(p, p, 1, nccl.Float32, nccl.Sum, r.stream.Handle())
		}))
		return errors.Join(r.stream.Sync(), r.pool.Free(p))
	})
}

// The real library, where RINGO_TEST_NCCL names one, on a machine without a GPU:
// it opens, knows its version, makes an id, and says why there is no communicator.
func TestRealLibrary(t *testing.T) {
	path := os.Getenv("RINGO_TEST_NCCL")
	if path == "" {
		t.Skip("RINGO_TEST_NCCL does not name a real libnccl.so.2 (pip install nvidia-nccl-cu13)")
	}
	lib, err := nccl.Open(path)
	require.NoError(t, err)
	t.Log(lib)
	id, err := lib.UniqueID()
	require.NoError(t, err)
	require.NotZero(t, id)
	if _, err := cuda.Load(); err == nil {
		t.Skip("there is a driver here")
	}
	err = lib.Err("ncclCommInitRankConfig", lib.NewComm().Init(1, &id, 0))
	require.Error(t, err)
	t.Log(err)
}
