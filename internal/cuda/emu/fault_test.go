package emu_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

const faultSource = `
extern "C" __global__ void read(const float* x, float* y, int i) { y[0] = x[i]; }
extern "C" __global__ void write(float* x, int i) { if (threadIdx.x == 3) x[i] = 1.f; }
extern "C" __global__ void vector(const float* x, float* y, int i) { *(float4*)y = *(const float4*)(x + i); }
extern "C" __global__ void shared(float* y, int i) { __shared__ float s[32]; s[i] = 1.f; y[0] = s[i]; }
extern "C" __global__ void dynamic(float* y, int i) { extern __shared__ __align__(16) float s[]; s[i] = 1.f; y[0] = s[i]; }
extern "C" __global__ void trap(float* y) { if (threadIdx.x == 1) __trap(); }
extern "C" __global__ void divide(int* y, int d) { y[0] = 7 / d; }
extern "C" __global__ void forever(volatile float* y) { while (y[0] != 1.f) {} }
extern "C" __global__ void some(float* y) { if (threadIdx.x < 16) __syncthreads(); else __syncwarp(0xffffffffu); y[0] = 1.f; }
extern "C" __global__ void __launch_bounds__(64) two(float* y) {
  if (threadIdx.x < 32) __syncthreads();
  else
    __syncthreads();
  y[0] = 1.f;
}
extern "C" __global__ void lanes(float* y) {
  if (threadIdx.x < 16) y[0] = __shfl_xor_sync(0xffffffffu, 1.f, 1);
  else y[1] = __shfl_xor_sync(0xffffffffu, 1.f, 1);
}
struct pair { float* a; int b; };
extern "C" __global__ void in_struct(pair p) { p.a[p.b] = 1.f; }
extern "C" __global__ void product(float* y) {
  unsigned a[4] = {};
  if (threadIdx.x < 16) return;
  emu_mma(y, a, 0, 0, false, __LINE__);
}
extern "C" __global__ void products(float* y) {
  unsigned a[4] = {};
  float d[4] = {};
  if (threadIdx.x < 16) emu_mma(d, a, 0, 0, false, __LINE__);
  else emu_mma(d, a, 0, 0, false, __LINE__);
}
extern "C" __global__ void rows(float* y) {
  __shared__ float s[512];
  unsigned r[4];
  emu_ldmatrix(r, s + 4 * threadIdx.x + (threadIdx.x == 7), false, __LINE__);
}
extern "C" __global__ void copy(float* y, int i) {
  __shared__ float s[4];
  emu_copy(s, y + i, 16, 16, __LINE__);
  emu_copies_commit();
  emu_copies_wait(0);
}
extern "C" __global__ void far_rows(float* y) {
  unsigned r[4];
  emu_ldmatrix(r, y + 4 * threadIdx.x, false, __LINE__);
}
extern "C" __global__ void far_copy(float* y) { emu_copy(y, y + 64, 16, 16, __LINE__); }
`

func TestFaultsAreErrors(t *testing.T) {
	const n = 1024 // 4096 bytes: no rounding
	for _, c := range []struct {
		kernel string
		cfg    emu.Config
		args   func(r *rig, x, y cuda.Ptr) *cuda.Args
		block  int
		want   []string
	}{
		{"read", emu.Config{}, xyi(n), 1,
			[]string{"CUDA_ERROR_ILLEGAL_ADDRESS (700)", "kernel read", "0 bytes after the end of memory of 4096 bytes", "thread (0,0,0)"}},
		{"read", emu.Config{Left: true}, xyi(-1), 1, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "4 bytes before the start of memory of 4096 bytes"}},
		{"write", emu.Config{}, xi(n + 5), 32, []string{"kernel write", "20 bytes after the end", "thread (3,0,0)"}},
		{"vector", emu.Config{}, xyi(1), 1, []string{"CUDA_ERROR_MISALIGNED_ADDRESS", "kernel vector", "test.cu:4"}},
		{"shared", emu.Config{}, yi(32), 1, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "test.cu:5", "index 32"}},
		{"dynamic", emu.Config{}, yi(64), 1, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "kernel dynamic"}},
		{"trap", emu.Config{}, y0, 2, []string{"CUDA_ERROR_LAUNCH_FAILED", "kernel trap", "thread (1,0,0)"}},
		{"divide", emu.Config{}, yi(0), 1, []string{"CUDA_ERROR_LAUNCH_FAILED", "division by zero"}},
		{"forever", emu.Config{Timeout: time.Millisecond}, y0, 1, []string{"CUDA_ERROR_LAUNCH_TIMEOUT", "kernel forever"}},
		{"some", emu.Config{}, y0, 32, []string{"CUDA_ERROR_LAUNCH_FAILED", "kernel some", "the others never come"}},
		{"two", emu.Config{}, y0, 64, []string{"CUDA_ERROR_LAUNCH_FAILED", "different __syncthreads", "lines 12 and 14"}},
		{"lanes", emu.Config{}, y0, 32,
			[]string{"CUDA_ERROR_LAUNCH_FAILED", "lanes of a warp meet with masks 0xffffffff (line 18) and 0xffffffff (line 19)"}},
		{"in_struct", emu.Config{}, inStruct(n), 1, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "0 bytes after the end"}},
		{"product", emu.Config{}, y0, 32, []string{"CUDA_ERROR_LAUNCH_FAILED", "line 26: an instruction of the whole warp", "thread (16,0,0)"}},
		{"products", emu.Config{}, y0, 32, []string{"CUDA_ERROR_LAUNCH_FAILED", "lanes of a warp meet in lines 31 and 32"}},
		{"rows", emu.Config{}, y0, 32, []string{"CUDA_ERROR_MISALIGNED_ADDRESS", "line 37: misaligned address", "ldmatrix", "thread (7,0,0)"}},
		{"copy", emu.Config{}, yi(1), 32, []string{"CUDA_ERROR_MISALIGNED_ADDRESS", "line 41: misaligned address", "a copy's source"}},
		{"copy", emu.Config{}, yi(n), 32, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "0 bytes after the end of memory"}},
		{"far_rows", emu.Config{}, y0, 32,
			[]string{"CUDA_ERROR_ILLEGAL_ADDRESS", "line 47: address", "a row of ldmatrix is not in shared memory"}},
		{"far_copy", emu.Config{}, y0, 32, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "line 49: address", "a copy's end is not in shared memory"}},
		{"read", emu.Config{}, goMemory, 1, []string{"CUDA_ERROR_ILLEGAL_ADDRESS", "parameter 0 is not device memory"}},
		{"read", emu.Config{FailLaunch: 1}, xyi(0), 1, []string{"CUDA_ERROR_LAUNCH_FAILED", "a failure that the test asked for"}},
	} {
		t.Run(c.kernel, func(t *testing.T) {
			r := newRig(t, c.cfg, faultSource)
			x, y := put(r, make([]float32, n)), put(r, make([]float32, n))
			r.launch(r.s, c.kernel, 1, c.block, 256, c.args(r, x, y))
			err := r.s.Sync()
			for _, want := range append(c.want, "newest first: "+c.kernel) {
				require.ErrorContains(t, err, want)
			}
			require.ErrorContains(t, r.s.Fill(x, 0, 4), c.want[0], "the error is sticky")
			emu.Heal()
			require.NoError(t, r.s.Fill(x, 0, 4))
			require.NoError(t, r.s.Sync())
		})
	}
}

func xyi(i int) func(*rig, cuda.Ptr, cuda.Ptr) *cuda.Args {
	return func(_ *rig, x, y cuda.Ptr) *cuda.Args { return cuda.NewArgs().Ptr(x).Ptr(y).I32(i) }
}

func xi(i int) func(*rig, cuda.Ptr, cuda.Ptr) *cuda.Args {
	return func(_ *rig, x, _ cuda.Ptr) *cuda.Args { return cuda.NewArgs().Ptr(x).I32(i) }
}

func yi(i int) func(*rig, cuda.Ptr, cuda.Ptr) *cuda.Args {
	return func(_ *rig, _, y cuda.Ptr) *cuda.Args { return cuda.NewArgs().Ptr(y).I32(i) }
}

func y0(_ *rig, _, y cuda.Ptr) *cuda.Args { return cuda.NewArgs().Ptr(y) }

func inStruct(i int32) func(*rig, cuda.Ptr, cuda.Ptr) *cuda.Args {
	return func(_ *rig, x, _ cuda.Ptr) *cuda.Args {
		p := struct {
			a cuda.Ptr
			b int32
		}{x, i}
		return cuda.NewArgs().Struct(unsafe.Pointer(&p), int(unsafe.Sizeof(p)))
	}
}

func goMemory(_ *rig, _, y cuda.Ptr) *cuda.Args {
	x := new(float32)
	return cuda.NewArgs().Ptr(cuda.Ptr(uintptr(unsafe.Pointer(x)))).Ptr(y).I32(0)
}

// An allocation that does not fill its pages has canaries before and after it. The
// ones after it are checked after each kernel, the ones before it when it is freed.
func TestWriteBesideSmallMemory(t *testing.T) {
	t.Setenv("RINGO_CUDA_DEBUG", "1") // pools do not round
	r := newRig(t, emu.Config{}, faultSource)
	f, err := r.module.Func("write")
	require.NoError(t, err)
	write := func(x cuda.Ptr, i int) error {
		return r.s.Launch(f, cuda.Dim{}, cuda.Dim{X: 32}, 0, cuda.NewArgs().Ptr(x).I32(i))
	}
	err = write(put(r, make([]float32, 10)), 10)
	require.ErrorContains(t, err, "cuStreamSynchronize after the launch(write) on device 0: CUDA_ERROR_ILLEGAL_ADDRESS")
	require.ErrorContains(t, err, "kernel write: bytes just outside of memory of 40 bytes were written")
	emu.Heal()
	x := put(r, make([]float32, 10))
	require.NoError(t, write(x, -1))
	err = r.pool.Free(x)
	require.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS")
	require.ErrorContains(t, err, "bytes just outside of memory of 40 bytes were written")
	emu.Heal()
}

func TestUseAfterFree(t *testing.T) {
	r := newRig(t, emu.Config{}, faultSource)
	defer emu.Heal()
	x, y := put(r, make([]float32, 1024)), put(r, make([]float32, 1024))
	require.NoError(t, r.pool.Free(x))
	require.NoError(t, r.dev.ReleaseCaches())
	r.launch(r.s, "read", 1, 1, 0, cuda.NewArgs().Ptr(x).Ptr(y).I32(3))
	require.ErrorContains(t, r.s.Sync(), "byte 12 of freed memory of 4096 bytes")
}

func TestOutOfMemoryIsNotSticky(t *testing.T) {
	r := newRig(t, emu.Config{}, faultSource)
	emu.Start(t, emu.Config{Memory: 1 << 20})
	_, err := r.pool.Alloc(r.s, 2<<20)
	require.True(t, cuda.IsOutOfMemory(err), "%v", err)
	r.alloc(512 << 10)
}

// Memory of a real GPU's size costs nothing where nobody uses it, neither pages nor mappings, which are limited (65530).
func TestLargeMemory(t *testing.T) {
	emu.Only(t, "a GPU may have less memory")
	if b, _ := os.ReadFile("/proc/sys/vm/overcommit_memory"); strings.TrimSpace(string(b)) == "2" {
		t.Skip("the kernel counts memory that nobody uses (vm.overcommit_memory is 2)")
	}
	r := newRig(t, emu.Config{Memory: 128 << 30}, faultSource)
	x, y := r.alloc(96<<30), r.alloc(4)
	r.launch(r.s, "read", 1, 1, 0, cuda.NewArgs().Ptr(x).Ptr(y).I32(23<<30/16))
	require.NoError(t, r.s.Sync())
}

func TestPeerAccessMustBeEnabled(t *testing.T) {
	r := newRig(t, emu.Config{Devices: 3, NoPeers: true}, faultSource)
	d, err := cuda.Load()
	require.NoError(t, err)
	far, err := d.Open(2)
	require.NoError(t, err)
	require.NoError(t, far.Lock())
	s, err := far.NewStream("far", 0)
	require.NoError(t, err)
	defer s.Close()
	pool := far.NewPool("far")
	x, err := pool.Alloc(s, 4096)
	require.NoError(t, err)
	far.Unlock()
	y := r.alloc(4096)
	args := cuda.NewArgs().Ptr(x).Ptr(y).I32(3)
	r.launch(r.s, "read", 1, 1, 0, args)
	require.ErrorContains(t, r.s.Sync(), "parameter 0 is memory of device 2, and no peer access is enabled")
	emu.Start(t, emu.Config{Devices: 3})
	require.NoError(t, r.dev.EnablePeer(far))
	require.NoError(t, r.dev.EnablePeer(far), "twice is fine")
	r.launch(r.s, "read", 1, 1, 0, args)
	require.NoError(t, r.s.Sync())
	require.NoError(t, far.Lock())
	defer far.Unlock()
	require.NoError(t, pool.Free(x))
	require.NoError(t, pool.Close())
}

// Go turns a fault into a panic in the same process, before and after the fault of
// a kernel.
func TestGoKeepsItsFaults(t *testing.T) {
	nilPanics := func() {
		var p *[4]int
		require.Panics(t, func() { p[1]++ })
	}
	nilPanics()
	r := newRig(t, emu.Config{}, faultSource)
	nilPanics()
	x := put(r, make([]float32, 1024))
	r.launch(r.s, "write", 1, 32, 0, cuda.NewArgs().Ptr(x).I32(1024))
	require.Error(t, r.s.Sync())
	nilPanics()
	emu.Heal()
}

// Variables of the device would be others for each stream, and those that begin as zeros looked like shared ones, so there are none.
func TestDeviceVariables(t *testing.T) {
	emu.Only(t, "a GPU has them")
	r := newRig(t, emu.Config{}, "")
	const kernel = `
extern "C" __global__ void f(int* y) { y[0] = seen; seen = 5; }`
	texts := []string{
		"__device__ int seen = 3;" + kernel,
		"template <class T> __device__ T one; " + strings.ReplaceAll(kernel, "seen", "one<int>"),
		"__device__ int seen;" + kernel,
		"__device__ int a, *at = &a; extern \"C\" __global__ void f(int* y) { y[0] = *at; at = y; }",
		`extern "C" { __device__ int seen; }` + kernel,
		strings.Replace(kernel, "y[0]", "static int seen; y[0]", 1),
	}
	if !reliability.Long(t) {
		texts = texts[:2]
	}
	for _, text := range texts {
		_, err := r.dev.Module(cuda.Source{Name: "variable.cu", Text: text})
		require.ErrorContains(t, err, "the emulator has no variables of the device, which launches share: give the kernel a pointer", text)
	}
}

func TestLongDeviceVariables(t *testing.T) { reliability.AsLong(t, TestDeviceVariables) }

// Constants, and shared variables of functions, templates and lambdas, are what they are on a GPU.
func TestSharedInTemplates(t *testing.T) {
	r := newRig(t, emu.Config{}, `
__constant__ int c[2] = {1, 2};
__device__ const int d[2] = {3, 4};
template <class T> __device__ int sum(int* y, int i) {
  __shared__ T s[32];
  s[threadIdx.x] = (T)(c[i] + d[i]);
  __syncthreads();
  return s[31 - threadIdx.x];
}
extern "C" __global__ void f(int* y) { y[blockIdx.x * 32 + threadIdx.x] = sum<int>(y, 0) + sum<unsigned short>(y, 1); }`)
	y := r.alloc(4 * 64)
	for range 2 {
		r.launch(r.s, "f", 2, 32, 0, cuda.NewArgs().Ptr(y))
		out := make([]int32, 64)
		require.NoError(t, r.s.Download(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), 4*len(out)), y))
		require.NoError(t, r.s.Sync())
		for _, x := range out {
			require.EqualValues(t, 10, x)
		}
	}
}

// The emulator knows what threads stored to so much shared memory, and to no more.
func TestRoomForSharedMemory(t *testing.T) {
	emu.Only(t, "a GPU has less room")
	for _, c := range []struct {
		bytes int
		wrong bool
	}{{48 << 10, false}, {48<<10 + 64, true}} {
		r := newRig(t, emu.Config{}, fmt.Sprintf(`
extern "C" __global__ void f(float* y) {
  __shared__ unsigned s[%d];
  extern __shared__ __align__(16) float d[];
  unsigned v[4] = {1, 2, 3, 4};
  s[0] = 0;
  emu_store16(emu_shared_address(d) + 232448 - 16, v, __LINE__);
  y[0] = s[0];
}`, c.bytes/4))
		f, err := r.module.Func("f")
		require.NoError(t, err)
		require.NoError(t, f.SetShared(232448))
		r.launch(r.s, "f", 1, 1, 232448, cuda.NewArgs().Ptr(r.alloc(4)))
		if err = r.s.Sync(); c.wrong {
			require.ErrorContains(t, err, "the emulator has room for 49152 bytes of static shared memory in a module, and 232448 of a launch")
			emu.Heal()
			continue
		}
		require.NoError(t, err)
	}
}
