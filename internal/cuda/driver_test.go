package cuda_test

import (
	"bytes"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestNoDriver(t *testing.T) {
	_, err := cuda.OpenDriver(cuda.DriverAt("libnosuchcuda.so.1"))
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorIs(t, err, dl.ErrNotFound)
	if dl.Enabled {
		require.ErrorContains(t, err, "install NVIDIA's driver")
		require.ErrorContains(t, err, "libnosuchcuda.so.1")
	}
}

func TestOldDriver(t *testing.T) {
	emu.Start(t, emu.Config{Version: 11080})
	_, err := cuda.OpenDriver(cuda.DriverAt(emu.Library(t, "libcuda.so")))
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "supports CUDA 11.8, but 12.0 or newer is needed")
}

func TestDriverWithoutDevice(t *testing.T) {
	emu.Start(t, emu.Config{Devices: -1})
	_, err := cuda.OpenDriver(cuda.DriverAt(emu.Library(t, "libcuda.so")))
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "CUDA_ERROR_NO_DEVICE (100)")
}

func TestLibraryThatIsNoDriver(t *testing.T) {
	emu.Only(t, "it is the library that is no driver")
	emu.Start(t, emu.Config{})
	_, err := cuda.OpenDriver(cuda.DriverAt(emu.Library(t, "libnvrtc.so")))
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "has no symbol cuDriverGetVersion")
}

func TestDevices(t *testing.T) {
	d := emu.Start(t, emu.Config{Devices: 3, Memory: 1 << 30, Version: 12040})
	n, err := d.Count()
	require.NoError(t, err)
	require.Equal(t, 3, n)
	dev, err := d.Open(1)
	require.NoError(t, err)
	require.Equal(t, "CPU emulator 1", dev.Name)
	require.Equal(t, "sm_90", dev.Arch())
	again, err := d.Open(1)
	require.NoError(t, err)
	require.Same(t, dev, again)
	cache, err := dev.Attribute(cuda.L2CacheSize)
	require.NoError(t, err)
	require.Equal(t, 4<<20, cache)
	bus, err := dev.PCIBusID()
	require.NoError(t, err)
	require.Equal(t, "0000:02:00.0", bus)
	_, err = d.Open(3)
	require.ErrorContains(t, err, "there is no device 3: 3 found")
}

func TestCallsNeedALock(t *testing.T) {
	dev, err := emu.Start(t, emu.Config{Devices: 2}).Open(1)
	require.NoError(t, err)
	_, err = dev.NewStream("s", 0)
	require.ErrorContains(t, err, "cuda: cuStreamCreateWithPriority on device 1: CUDA_ERROR_INVALID_CONTEXT (201)")
	require.NoError(t, dev.Lock())
	s, err := dev.NewStream("s", 0)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	dev.Unlock()
	_, err = dev.NewEvent(false)
	require.ErrorContains(t, err, "CUDA_ERROR_INVALID_CONTEXT")
}

// Locks of several devices nest: a stream is used with its own device's context.
func TestLocksNest(t *testing.T) {
	r := newRig(t, emu.Config{Devices: 2})
	d, err := cuda.Load()
	require.NoError(t, err)
	other, err := d.Open(1)
	require.NoError(t, err)
	p := r.alloc(512)
	require.NoError(t, r.s.Fill(p, 0, 512))
	require.NoError(t, other.Lock())
	require.ErrorContains(t, r.s.Fill(p, 0, 512), "CUDA_ERROR_INVALID_HANDLE")
	other.Unlock()
	require.NoError(t, r.s.Fill(p, 0, 512))
}

func TestOwner(t *testing.T) {
	r := newRig(t, emu.Config{})
	p := r.alloc(512)
	i, err := r.dev.Owner(p + 511)
	require.NoError(t, err)
	require.Equal(t, 0, i)
	_, err = r.dev.Owner(p + 512)
	require.ErrorContains(t, err, "CUDA_ERROR_INVALID_VALUE")
	h, err := r.dev.NewHost(512)
	require.NoError(t, err)
	defer h.Close()
	first := unsafe.SliceData(h.Bytes())
	_, err = r.dev.Owner(cuda.Ptr(uintptr(unsafe.Pointer(first))))
	require.ErrorContains(t, err, "is not device memory")
}

func TestCopies(t *testing.T) {
	r := newRig(t, emu.Config{})
	before := r.dev.Stats()
	x := make([]float32, 1000)
	for i := range x {
		x[i] = float32(i)
	}
	a := r.put(x)
	x[3] = -1 // ordinary memory was read before the call returned
	b := r.alloc(4000)
	require.NoError(t, r.s.Copy(b, a, 4000))
	require.NoError(t, r.s.Fill(b, 0, 8))
	require.NoError(t, r.s.Fill32(b+8, 0x3f800000, 1))
	y := get[float32](r, r.s, b, 1000)
	require.Equal(t, []float32{0, 0, 1, 3, 4}, y[:5])
	require.Equal(t, float32(999), y[999])
	require.NoError(t, r.s.Upload(a, nil))
	if !emu.OnGPU() { // where it may reach other memory
		require.ErrorContains(t, r.s.Copy(b, a, 1<<20), "cuMemcpyDtoDAsync on device 0: CUDA_ERROR_INVALID_VALUE")
	}
	after := r.dev.Stats()
	require.Equal(t, int64(1), after.HostToDevice-before.HostToDevice)
	require.Equal(t, int64(1), after.DeviceToHost-before.DeviceToHost)
}

func TestPinnedCopiesAreAsynchronous(t *testing.T) {
	r := newRig(t, emu.Config{})
	h, err := r.dev.NewHost(512)
	require.NoError(t, err)
	copy(h.Bytes(), make([]byte, 512))
	p := r.alloc(512)
	emu.Hold(r.s)
	require.NoError(t, r.s.Upload(p, h.Bytes()))
	h.Bytes()[7] = 9 // too early: the copy has not run
	emu.Release(r.s)
	require.Equal(t, byte(9), get[byte](r, r.s, p, 512)[7])
	require.NoError(t, h.Close())
}

// A device that can access ordinary host memory does not access it after the call,
// either.
func TestCopiesOfReachableMemory(t *testing.T) {
	r := newRig(t, emu.Config{Reaches: true, Delay: 5 * time.Millisecond})
	p := r.alloc(512)
	for i := range 20 {
		x := bytes.Repeat([]byte{byte(i + 1)}, 512)
		require.NoError(t, r.s.Upload(p, x))
		x[7] = 99
		y := make([]byte, 512)
		require.NoError(t, r.s.Download(y, p))
		require.Equal(t, bytes.Repeat([]byte{byte(i + 1)}, 512), y)
	}
	before := r.dev.Stats().Syncs
	h, err := r.dev.NewHost(512)
	require.NoError(t, err)
	n := testing.AllocsPerRun(10, func() { require.NoError(t, r.s.Upload(p, h.Bytes())) })
	require.True(t, n == 0 || reliability.Racing, "%v allocations", n)
	require.Equal(t, before, r.dev.Stats().Syncs, "pinned memory is not waited for")
	require.NoError(t, r.s.Sync())
	require.NoError(t, h.Close())
}

func TestCopyPeer(t *testing.T) {
	r := newRig(t, emu.Config{Devices: 2})
	d, err := cuda.Load()
	require.NoError(t, err)
	other, err := d.Open(1)
	require.NoError(t, err)
	require.NoError(t, other.Lock())
	s, err := other.NewStream("there", 0)
	require.NoError(t, err)
	pool := other.NewPool("there")
	q, err := pool.Alloc(s, 512)
	require.NoError(t, err)
	other.Unlock()

	p := r.put([]int32{1, 2, 3})
	require.NoError(t, r.s.CopyPeer(q, other, p, r.dev, 12))
	e := r.event()
	require.NoError(t, e.Record(r.s))

	require.NoError(t, other.Lock())
	defer other.Unlock()
	require.NoError(t, s.Wait(e), "an event of another device")
	require.Equal(t, []int32{1, 2, 3}, get[int32](r, s, q, 3))
	require.NoError(t, pool.Free(q))
	require.NoError(t, pool.Close())
	require.NoError(t, s.Close())
}

// Error codes of the call itself are not failures of an earlier launch, after which
// the device could not be used.
func TestFailuresOfKernels(t *testing.T) {
	var codes []int
	for code := range 1000 {
		if cuda.Asynchronous(code) {
			codes = append(codes, code)
		}
	}
	require.Equal(t, []int{214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721}, codes)
}

func TestTimedEvents(t *testing.T) {
	r := newRig(t, emu.Config{})
	a, err := r.dev.NewEvent(true)
	require.NoError(t, err)
	defer a.Close()
	b, err := r.dev.NewEvent(true)
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, a.Record(r.s))
	require.NoError(t, b.Record(r.s))
	require.NoError(t, b.Sync())
	ms, err := b.Elapsed(a)
	require.NoError(t, err)
	require.GreaterOrEqual(t, ms, float32(0))
	_, err = b.Elapsed(r.event())
	require.Error(t, err, "an untimed event")
}

func TestLeaksAreListed(t *testing.T) {
	emu.Only(t, "a driver does not tell what is open")
	r := newRig(t, emu.Config{})
	p := r.alloc(512)
	s, err := r.dev.NewStream("leak", 0)
	require.NoError(t, err)
	require.Contains(t, emu.Leaks(), "512 bytes of device 0")
	require.Contains(t, emu.Leaks(), "2 streams")
	require.NoError(t, s.Close())
	require.NoError(t, r.pool.Free(p))
	require.NoError(t, r.pool.Close())
	require.NotContains(t, emu.Leaks(), "bytes")
	require.Contains(t, emu.Leaks(), "1 streams")
}
