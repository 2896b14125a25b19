package emu_test

import (
	"bytes"
	"debug/elf"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/dl"
)

// rig is a device with a stream, and the kernels of one source.
type rig struct {
	t      *testing.T
	dev    *cuda.Device
	s      *cuda.Stream
	pool   *cuda.Pool
	module *cuda.Module
}

func newRig(t *testing.T, cfg emu.Config, source string) *rig {
	t.Helper()
	dev, err := emu.Start(t, cfg).Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	if emu.Leaks() == "" { // the test's first rig
		t.Cleanup(func() { require.Empty(t, emu.Leaks()) })
	}
	r := &rig{t: t, dev: dev, pool: dev.NewPool("test")}
	r.s = r.stream("compute")
	r.module, err = dev.Module(cuda.Source{Name: "test.cu", Text: source})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.pool.Close())
		dev.Unlock()
	})
	return r
}

func (r *rig) stream(name string) *cuda.Stream {
	s, err := r.dev.NewStream(name, 0)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { s.Close() })
	return s
}

func (r *rig) event() *cuda.Event {
	e, err := r.dev.NewEvent(false)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { e.Close() })
	return e
}

// launch queues a kernel with one-dimensional sizes.
func (r *rig) launch(s *cuda.Stream, name string, grid, block, shared int, a *cuda.Args) {
	r.t.Helper()
	f, err := r.module.Func(name)
	require.NoError(r.t, err)
	require.NoError(r.t, s.Launch(f, cuda.Dim{X: grid}, cuda.Dim{X: block}, shared, a))
}

func (r *rig) alloc(n int) cuda.Ptr {
	r.t.Helper()
	p, err := r.pool.Alloc(r.s, n)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { r.pool.Free(p) }) // an error when the test did it
	return p
}

// put makes device memory that holds x. If x is a multiple of 512 bytes, the memory
// has exactly this size.
func put[T any](r *rig, x []T) cuda.Ptr {
	r.t.Helper()
	p := r.alloc(len(bytesOf(x)))
	require.NoError(r.t, r.s.Upload(p, bytesOf(x)))
	require.NoError(r.t, r.s.Sync())
	return p
}

// get reads n elements on stream s.
func get[T any](r *rig, s *cuda.Stream, p cuda.Ptr, n int) []T {
	r.t.Helper()
	x := make([]T, n)
	require.NoError(r.t, s.Download(bytesOf(x), p))
	return x
}

func bytesOf[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	return x
}

const addSource = `
extern "C" __global__ void add(const float* x, const float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}`

func TestVectorAdd(t *testing.T) {
	r := newRig(t, emu.Config{}, addSource)
	const n = 1000
	x, z := put(r, ramp(n)), r.alloc(n*4)
	r.launch(r.s, "add", 4, 256, 0, cuda.NewArgs().Ptr(x).Ptr(x).Ptr(z).I32(n))
	for i, v := range get[float32](r, r.s, z, n) {
		require.Equal(t, float32(2*i), v)
	}
}

// sumSource has four barriers, all of which are needed.
const sumSource = `
extern "C" __global__ void sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  extern __shared__ float d[];
  int t = threadIdx.x;
  s[t] = t < n ? x[t] : 0.f;
  __syncthreads(); // 1
  d[t] = s[255 - t];
  __syncthreads(); // 2
  s[t] = d[(t + 128) % 256];
  __syncthreads(); // 3
  for (int k = 128; k > 0; k >>= 1) {
    if (t < k) s[t] = s[t] * 2 + s[t + k];
    __syncthreads(); // 4
  }
  if (t == 0) y[0] = s[0];
}`

func (r *rig) sum() float32 {
	x, y := put(r, ramp(256)), r.alloc(4)
	r.launch(r.s, "sum", 1, 256, 1024, cuda.NewArgs().Ptr(x).Ptr(y).I32(200))
	return get[float32](r, r.s, y, 1)[0]
}

func TestDeletedBarrierShows(t *testing.T) {
	want := newRig(t, emu.Config{}, sumSource).sum()
	require.Equal(t, want, newRig(t, emu.Config{Reverse: true}, sumSource).sum())
	for i := 1; i <= 4; i++ {
		mutant := strings.Replace(sumSource, "__syncthreads(); // "+string(rune('0'+i)), "", 1)
		require.NotEqual(t, sumSource, mutant)
		up := newRig(t, emu.Config{}, mutant).sum()
		down := newRig(t, emu.Config{Reverse: true}, mutant).sum()
		require.False(t, up == want && down == want, "nobody noticed that barrier %d is gone", i)
	}
}

// crossing writes x on one stream and reads it on another; with says whether the
// second stream waits for the first.
func crossing(t *testing.T, cfg emu.Config, with bool) []float32 {
	r := newRig(t, cfg, addSource)
	other, done := r.stream("other"), r.event()
	x, z := put(r, ramp(1024)), r.alloc(4096)
	require.NoError(t, r.s.Fill32(z, 0, 1024))
	require.NoError(t, r.s.Sync())
	emu.Hold(r.s)
	r.launch(r.s, "add", 4, 256, 0, cuda.NewArgs().Ptr(x).Ptr(x).Ptr(z).I32(1024))
	require.NoError(t, done.Record(r.s))
	if with {
		require.NoError(t, other.Wait(done))
	}
	host, err := r.dev.NewHost(4096)
	require.NoError(t, err)
	defer host.Close()
	require.NoError(t, other.Download(host.Bytes(), z))
	if !with {
		require.NoError(t, other.Sync())
	}
	emu.Release(r.s)
	require.NoError(t, other.Sync())
	return append([]float32(nil), unsafe.Slice((*float32)(unsafe.Pointer(&host.Bytes()[0])), 1024)...)
}

func TestDeletedWaitShows(t *testing.T) {
	for _, cfg := range []emu.Config{{}, {Lazy: true}, {Delay: 1e6, Seed: 7}} {
		require.Equal(t, float32(2046), crossing(t, cfg, true)[1023])
		require.Equal(t, float32(0), crossing(t, cfg, false)[1023], "nobody noticed that the wait is gone")
	}
}

// TestLazyFindsMissingWait needs no Hold, because nobody waits for the first
// stream.
func TestLazyFindsMissingWait(t *testing.T) {
	for _, with := range []bool{true, false} {
		r := newRig(t, emu.Config{Lazy: true}, addSource)
		other, done := r.stream("other"), r.event()
		x, z := put(r, ramp(1024)), r.alloc(4096)
		r.launch(r.s, "add", 4, 256, 0, cuda.NewArgs().Ptr(x).Ptr(x).Ptr(z).I32(1024))
		require.NoError(t, done.Record(r.s))
		if with {
			require.NoError(t, other.Wait(done))
		}
		v := get[float32](r, other, z, 1024)[1023]
		require.Equal(t, with, v == 2046, "read %v", v) // NaN without the wait
	}
}

func TestHoldStopsAStream(t *testing.T) {
	r := newRig(t, emu.Config{}, addSource)
	e := r.event()
	done, err := e.Done()
	require.NoError(t, err)
	require.True(t, done, "an event that was never recorded")
	emu.Hold(r.s)
	require.NoError(t, e.Record(r.s))
	done, err = e.Done()
	require.NoError(t, err)
	require.False(t, done)
	done, err = r.s.Done()
	require.NoError(t, err)
	require.False(t, done)
	emu.Release(r.s)
	require.NoError(t, e.Sync())
	done, err = r.s.Done()
	require.NoError(t, err)
	require.True(t, done)
}

// TestMappingsDoNotGrow: Linux allows 65,530 mappings in a process. The threads of
// streams end some time after the streams, so sometimes a round needs more than the
// one before.
func TestMappingsDoNotGrow(t *testing.T) {
	r := newRig(t, emu.Config{}, addSource)
	round := func() int {
		var streams [3]*cuda.Stream
		for i := range streams {
			s, err := r.dev.NewStream("short", 0)
			require.NoError(t, err)
			streams[i] = s
			x, err := r.pool.Alloc(s, 4096<<i)
			require.NoError(t, err)
			r.launch(s, "add", 4, 256, 0, cuda.NewArgs().Ptr(x).Ptr(x).Ptr(x).I32(1000))
			require.NoError(t, r.pool.Free(x))
		}
		for _, s := range streams {
			require.NoError(t, s.Sync())
			require.NoError(t, s.Close())
		}
		require.NoError(t, r.dev.ReleaseCaches())
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return bytes.Count(maps, []byte("\n"))
	}
	first, last := 0, 0
	for range 10 {
		first = max(first, round())
	}
	for range 100 {
		last = round()
	}
	require.Less(t, last, first+300, "300 streams kept more than a mapping each")
}

// At the end of a process under the race detector, streams still use what the libraries have: nothing is destroyed.
func TestEndOfProcess(t *testing.T) {
	emu.Only(t, "a driver is not closed while it is used")
	r := newRig(t, emu.Config{}, addSource)
	x := put(r, ramp(1000))
	for _, name := range []string{"libcuda", "libnvrtc", "libnvml", "libcublaslt", "libnccl"} {
		f, err := elf.Open(emu.Library(t, name+".so"))
		require.NoError(t, err)
		imported, err := f.DynamicSymbols()
		require.NoError(t, err)
		for _, s := range imported {
			require.NotEqual(t, "__cxa_atexit", s.Name, "%s has static objects that the end of the process destroys", name)
		}
		require.NoError(t, f.Close())
	}
	driver, err := dl.Open("the emulated driver", emu.Library(t, "libcuda.so"))
	require.NoError(t, err)
	driver.AtExit()
	later := r.stream("later")
	r.launch(later, "add", 4, 256, 0, cuda.NewArgs().Ptr(x).Ptr(x).Ptr(x).I32(1000))
	require.Equal(t, float32(1998), get[float32](r, later, x, 1000)[999])
}
