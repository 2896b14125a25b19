package cuda_test

import (
	"errors"
	"flag"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/memory"
)

func open(t testing.TB, index int) *cuda.Device {
	t.Helper()
	dev, err := cuda.NewDevice(index)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	if flag.Lookup("test.run").Value.String() == "" {
		warm.Do(func() { compile(t, dev) })
	}
	return dev
}

var warm sync.Once

// compile fills the cache on disk, several kernels at a time. With an empty cache, tests would compile one kernel after the other.
func compile(t testing.TB, dev *cuda.Device) {
	c, err := gpu.LoadCompiler()
	require.NoError(t, err)
	_, err = cuda.CompileAll(false, func(_ string, src gpu.Source, options ...string) error {
		if src.Specific {
			return nil // for one architecture: TestNVRTC
		}
		_, err := c.CompileCached(src, dev.GPU().Arch(), options...)
		return err
	})
	require.NoError(t, err)
}

func ones(dev tensor.Device, n int) tensor.Tensor {
	x := tensor.New(dev, tensor.Float32, n)
	tensor.Constant(1).Fill(x, 0, 0)
	return x
}

// TestBind: the device's context is current on the thread between Bind and Unbind, and not otherwise.
func TestBind(t *testing.T) {
	dev := device(t)
	pool := dev.GPU().NewPool("test")
	use := func() error {
		p, err := pool.Alloc(dev.Queue(0).(*cuda.Queue).Stream(), 100)
		if err == nil {
			err = pool.Free(p)
		}
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.Error(t, use())
	require.NoError(t, dev.Bind())
	require.NoError(t, use())
	require.NoError(t, pool.Close())
	dev.Unbind()
	require.Error(t, use())
}

// double computes x + x in place.
func double(e *tensor.Exec, x tensor.Tensor) {
	a := e.Args(tensor.OpAdd, x.DType()).Out(x).In(x).In(x)
	a.NDim, a.Dim[0] = 1, x.Len()
	a.Stride[0][0], a.Stride[1][0], a.Stride[2][0] = 1, 1, 1
	e.Launch()
}

func TestDevice(t *testing.T) {
	dev := device(t)
	assert.Equal(t, "cuda:0", dev.String())
	assert.False(t, dev.Host())
	_, err := cuda.NewDevice(17)
	require.ErrorContains(t, err, "there is no device 17")
	p, err := dev.Alloc(0)
	require.NoError(t, err)
	dev.Free(p)
	dev.Free(p) // freed twice
}

// TestLaunchBinds: if a goroutine has no context, or another device's, a launch makes the right one current.
func TestLaunchBinds(t *testing.T) {
	emu.Start(t, emu.Config{Devices: 2})
	dev := device(t)
	other := open(t, 1)
	for range 3 {
		var wg sync.WaitGroup
		wg.Go(func() {
			e, f := tensor.NewExec(dev), tensor.NewExec(other)
			x, y := ones(dev, 100), ones(other, 100)
			for range 3 {
				double(e, x)
				double(f, y)
			}
			assert.Equal(t, 8.0, tensor.Floats(x)[99])
			assert.Equal(t, 8.0, tensor.Floats(y)[99])
		})
		wg.Wait()
	}
	require.NoError(t, dev.Bind())
}

func TestCopyBetweenDevices(t *testing.T) {
	emu.Start(t, emu.Config{Devices: 2})
	dev := device(t)
	other := open(t, 1)
	x, y := ones(dev, 1000), tensor.New(other, tensor.Float32, 1000)
	require.NoError(t, dev.Queue(0).Sync())
	other.Copy(y.Ptr(), x.Ptr(), 4000, other.Queue(0))
	assert.Equal(t, 1.0, tensor.Floats(y)[999])
	tensor.Copy(y, y) // nothing: a copy's ranges must not overlap
	h, err := dev.AllocHost(4000)
	require.NoError(t, err)
	dev.Copy(h, y.Ptr(), 4000, dev.Queue(1))
	g := make([]float32, 1000)
	dev.Copy(unsafe.Pointer(&g[0]), h, 4000, dev.Queue(1))
	require.NoError(t, dev.Queue(1).Sync())
	assert.Equal(t, float32(1), g[999])
	dev.FreeHost(h)
}

// TestQueuesAreOrderedByMarks: the streams run only as far as somebody waits for them. So without an order, a copy would not see the
// computed values.
func TestQueuesAreOrderedByMarks(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Delay: time.Millisecond, Reverse: true})
	dev := open(t, 0)
	e, x := tensor.NewExec(dev), ones(dev, 5000)
	y := make([]float32, 5000)
	for i := range 100 { // more than there are events
		double(e, x)
		if i%7 != 0 {
			double(e, x)
		}
		tensor.Constant(1).Fill(x, 0, 0)
		double(e, x)
		mark := dev.Queue(0).Mark()
		require.NoError(t, dev.Queue(1).After(mark))
		dev.Copy(unsafe.Pointer(&y[0]), x.Ptr(), 4*len(y), dev.Queue(1))
		copied := dev.Queue(1).Mark()
		require.NoError(t, copied.Wait())
		assert.True(t, copied.Done())
		require.Equal(t, float32(2), y[4999])
		y[4999] = 0
	}
	assert.True(t, dev.Queue(0).Mark().F != nil)
	require.NoError(t, dev.Queue(1).After(tensor.Pending{}))
}

// TestFreedMemoryIsOrdered: memory that is reused is not written on another queue before its last reader is done.
func TestFreedMemoryIsOrdered(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Delay: time.Millisecond})
	dev := open(t, 0)
	e := tensor.NewExec(dev)
	sum := ones(dev, 4096)
	for range 20 {
		p, err := dev.Alloc(4 * 4096)
		require.NoError(t, err)
		x := tensor.FromPtr(dev, p, tensor.Float32, 4096)
		tensor.Constant(1).Fill(x, 0, 0)
		double(e, x)
		dev.Copy(sum.Ptr(), p, 4*4096, dev.Queue(0))
		dev.Free(p)
		again, err := dev.Alloc(4 * 4096)
		require.NoError(t, err)
		require.Equal(t, p, again)
		zero := make([]float32, 4096)
		dev.Copy(again, unsafe.Pointer(&zero[0]), 4*4096, dev.Queue(1))
		require.NoError(t, dev.Queue(1).Sync())
		dev.Free(again)
		require.Equal(t, 2.0, tensor.Floats(sum)[4095])
	}
}

// TestFreedMemoryOfAnotherQueue: memory that another queue still reads is not given out to the computing queue.
func TestFreedMemoryOfAnotherQueue(t *testing.T) {
	dev := device(t)
	for range 2 {
		q := dev.Queue(1).(*cuda.Queue)
		p, err := dev.Alloc(4 * 1000)
		require.NoError(t, err)
		x, seen, two := tensor.FromPtr(dev, p, tensor.Float32, 1000), tensor.New(dev, tensor.Float32, 1000), tensor.New(dev, tensor.Float32, 1000)
		tensor.Constant(1).Fill(x, 0, 0)
		tensor.Constant(2).Fill(two, 0, 0)
		require.NoError(t, errors.Join(dev.Queue(0).Sync(), q.Sync()))
		hold(q)
		dev.Copy(seen.Ptr(), p, 4*1000, q)
		dev.Free(p)
		again, err := dev.Alloc(4 * 1000)
		require.NoError(t, err)
		dev.Copy(again, two.Ptr(), 4*1000, dev.Queue(0)) // the host does not wait for it
		mark := dev.Queue(0).Mark()
		for range 1000 { // time for launches that do not wait
			mark.Done()
			runtime.Gosched()
		}
		release(q)
		require.NoError(t, q.Sync())
		require.Equal(t, 1.0, tensor.Floats(seen)[999])
		dev.Free(again)
	}
}

// TestFreeHostWaitsForNothing: freeing page-locked memory does not wait for a copy from it that has not run. The memory is given out again
// when the copy has run. If Free waited, it might wait for a collective whose other ranks wait for this one.
func TestFreeHostWaitsForNothing(t *testing.T) {
	dev := device(t)
	x := tensor.New(dev, tensor.Float32, 1000)
	require.NoError(t, dev.Queue(0).Sync()) // x is zero
	alloc := func() tensor.Ptr {
		p, err := dev.AllocHost(4000)
		require.NoError(t, err)
		return p
	}
	first := alloc()
	unsafe.Slice((*float32)(first), 1000)[999] = 7
	q := dev.Queue(1).(*cuda.Queue)
	hold(q)
	dev.Copy(x.Ptr(), first, 4000, q)
	dev.FreeHost(first)
	dev.FreeHost(first) // it is not in use any more
	second := alloc()
	require.NotEqual(t, first, second)
	unsafe.Slice((*float32)(second), 1000)[999] = 8
	release(q)
	for k := range 2 {
		require.NoError(t, dev.Queue(k).Sync())
	}
	require.Equal(t, 7.0, tensor.Floats(x)[999])
	require.Equal(t, first, alloc())
	require.NotContains(t, []tensor.Ptr{first, second}, alloc())
}

func TestFromPointer(t *testing.T) {
	dev := device(t)
	pool := dev.GPU().NewPool("another library's")
	require.NoError(t, dev.Bind())
	p, err := pool.Alloc(dev.Queue(0).(*cuda.Queue).Stream(), 400)
	require.NoError(t, err)
	x, release, err := dev.FromPointer(uintptr(p), tensor.Float32, 10, 10)
	require.NoError(t, err)
	tensor.Constant(3).Fill(x, 0, 0)
	tape := tensor.NewTape(dev)
	assert.Equal(t, 300.0, tape.Input(x).Sum().Item())
	tape.Close()
	release()
	_, _, err = dev.FromPointer(64, tensor.Float32, 10)
	require.ErrorContains(t, err, "cuda:0: 0x40 is not its memory")
	require.NoError(t, dev.Bind())
	require.NoError(t, pool.Free(p))
	require.NoError(t, pool.Close())
}

func TestPointerOfAnotherDevice(t *testing.T) {
	emu.Start(t, emu.Config{Devices: 2})
	dev, other := open(t, 0), open(t, 1)
	p, err := dev.Alloc(400)
	require.NoError(t, err)
	_, _, err = other.FromPointer(uintptr(p), tensor.Float32, 10, 10)
	require.ErrorContains(t, err, "it belongs to device 0")
	dev.Free(p)
}

// TestKernelThatFails: after an invalid access, all calls fail with the same error, which names the launches.
func TestKernelThatFails(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	x := ones(dev, 100)
	e := tensor.NewExec(dev)
	double(e, x)
	a := e.Args(tensor.OpNeg, tensor.Float32).Out(x).In(x)
	a.Len[0] = 1 << 34 // outside of all memory: addresses close to x may be mapped on a GPU
	e.Launch()
	err = dev.Queue(0).Sync()
	var f *tensor.Failure
	require.ErrorAs(t, err, &f)
	var cause *gpu.Error
	require.ErrorAs(t, err, &cause)
	assert.Equal(t, []string{"neg", "add"}, cause.Launches[:2])
	for range 2 {
		again := tensor.Try(func() { double(e, x) })
		require.True(t, errors.Is(again, f), "%v", again)
		require.Equal(t, f, dev.Queue(1).Sync())
	}
	require.ErrorIs(t, dev.Close(), f)
	emu.Heal()
}

func TestOutOfMemory(t *testing.T) {
	emu.Start(t, emu.Config{Memory: 64 << 20})
	dev := open(t, 0)
	x := tensor.NewFor(memory.Parameters, dev, tensor.Float32, 1<<20)
	err := tensor.Try(func() { tensor.New(dev, tensor.Float32, 1<<28) })
	require.ErrorContains(t, err, "in use: parameters 4.00 MiB; `ringo plan` says how much a training needs")
	require.ErrorContains(t, err, "no memory for 1.00 GiB")
	assert.Equal(t, 0.0, tensor.Floats(x)[0])
}

// TestNoKernel: a missing kernel is an error that names operation, type and device.
func TestNoKernel(t *testing.T) {
	dev := device(t)
	err := tensor.Try(func() {
		e, x := tensor.NewExec(dev), tensor.New(dev, tensor.Int32, 3)
		e.Args(tensor.OpExp, tensor.Int32).Out(x).In(x)
		e.Launch()
	})
	require.ErrorContains(t, err, "exp int32[3], int32[3]: cuda:0 has no kernel for int32")
}
