package cuda_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

const launchSource = `
struct list { int n; float* p[3]; };
extern "C" __global__ void params(double* y, char* z, int a, long long b, float c, double d, unsigned e, unsigned long long f, list l) {
  y[0] = a; y[1] = b; y[2] = c; y[3] = d; y[4] = e; y[5] = f; y[6] = l.n; y[7] = l.p[2][0];
  *z = 7;
}
extern "C" __global__ void where(int* y) {
  int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  y[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 100 + t;
}
extern "C" __global__ void dynamic(int* y, int n) {
  extern __shared__ int s[];
  s[n - 1] = n;
  y[0] = s[n - 1];
}
extern "C" __global__ void __launch_bounds__(64, 2) bounded(int* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void nothing() {}`

func TestParams(t *testing.T) {
	r := newRig(t, emu.Config{})
	y, z, q := r.alloc(512), r.alloc(512), r.put([]float32{2.5})
	l := struct {
		n int32
		p [3]cuda.Ptr
	}{3, [3]cuda.Ptr{0, 0, q}}
	require.NoError(t, r.s.Fill(z, 0xff, 2))
	args := cuda.NewArgs().I32(99).Reset().Ptr(y).Ptr(z).I32(-1).I64(-1<<40).F32(0.5).F64(0.1).U32(1<<31).U64(1<<50).
		Struct(unsafe.Pointer(&l), int(unsafe.Sizeof(l)))
	require.NoError(t, r.s.Launch(r.kernel(launchSource, "params"), dim(1), dim(1), 0, args))
	require.Equal(t, []float64{-1, -1 << 40, 0.5, 0.1, 1 << 31, 1 << 50, 3, 2.5}, get[float64](r, r.s, y, 8))
	require.Equal(t, []byte{7, 0xff}, get[byte](r, r.s, z, 2))
	one, want := r.kernel(stepSource, "addto"), "CUDA_ERROR_INVALID_VALUE"
	if emu.OnGPU() {
		return // a driver takes what it finds
	}
	require.ErrorContains(t, r.s.Launch(one, dim(1), dim(1), 0, args.Reset().Ptr(y).Ptr(z)), want, "one is missing")
	require.ErrorContains(t, r.s.Launch(one, dim(1), dim(1), 0, args.I32(0).I32(0)), want, "one too many")
	require.ErrorContains(t, r.s.Launch(one, dim(1), dim(1), 0, args.Reset().I32(0).I32(0).I32(0)), want, "an int for a pointer")
	require.Panics(t, func() { args.I32(1 << 31) })
	require.Panics(t, func() {
		for range 65 {
			args.I32(1)
		}
	})
}

func TestLaunchShapes(t *testing.T) {
	r := newRig(t, emu.Config{Seed: 3})
	y := r.alloc(4 * 24 * 30)
	grid, block := cuda.Dim{X: 2, Y: 3, Z: 4}, cuda.Dim{X: 5, Y: 3, Z: 2}
	require.NoError(t, r.s.Launch(r.kernel(launchSource, "where"), grid, block, 0, cuda.NewArgs().Ptr(y)))
	for i, v := range get[int32](r, r.s, y, 24*30) {
		require.Equal(t, int32(i/30*100+i%30), v)
	}
	for _, bad := range [][2]cuda.Dim{{dim(1), dim(1025)}, {dim(1), {X: 1, Z: 65}}, {{X: 1, Y: 65536}, dim(1)}} {
		err := r.s.Launch(r.kernel(launchSource, "where"), bad[0], bad[1], 0, cuda.NewArgs().Ptr(y))
		require.ErrorContains(t, err, "(where) on device 0: CUDA_ERROR_INVALID_VALUE")
	}
	err := r.s.Launch(r.kernel(launchSource, "bounded"), dim(1), dim(65), 0, cuda.NewArgs().Ptr(y))
	require.ErrorContains(t, err, "cuLaunchKernel[grid {1 0 0} block {65 0 0} shared 0](bounded)")
	require.NoError(t, r.s.Launch(r.kernel(launchSource, "bounded"), dim(1), dim(64), 0, cuda.NewArgs().Ptr(y)))
}

func TestLargeSharedMemory(t *testing.T) {
	r := newRig(t, emu.Config{})
	limit, err := r.dev.Attribute(cuda.MaxSharedPerBlockMax)
	require.NoError(t, err)
	f, y := r.kernel(launchSource, "dynamic"), r.alloc(4)
	args := cuda.NewArgs().Ptr(y).I32(limit / 4)
	require.ErrorContains(t, r.s.Launch(f, dim(1), dim(1), limit, args), "CUDA_ERROR_INVALID_VALUE")
	require.NoError(t, f.SetShared(limit))
	defer f.SetShared(48 << 10) // a module lives as long as the process
	require.NoError(t, r.s.Launch(f, dim(1), dim(1), limit, args))
	require.Equal(t, int32(limit/4), get[int32](r, r.s, y, 1)[0])
	require.ErrorContains(t, f.SetShared(limit+1), "cuFuncSetAttribute(dynamic)")
}

func TestUnknownKernel(t *testing.T) {
	r := newRig(t, emu.Config{})
	m, err := r.dev.Module(cuda.Source{Name: "test.cu", Text: launchSource})
	require.NoError(t, err)
	_, err = m.Func("nosuch")
	require.ErrorContains(t, err, "cuModuleGetFunction(nosuch in test.cu) on device 0: CUDA_ERROR_NOT_FOUND")
}

// In steady state, a step copies nothing to or from the host, waits for nothing,
// and does not allocate on the Go heap.
func steadyStep(r *rig, f *cuda.Func, args *cuda.Args, side *cuda.Stream, e *cuda.Event) func() {
	return func() {
		a, err := r.pool.Alloc(r.s, 4096)
		require.NoError(r, err)
		b, err := r.pool.Alloc(r.s, 1000)
		require.NoError(r, err)
		require.NoError(r, r.s.Launch(f, dim(1), dim(1), 0, args))
		require.NoError(r, r.s.Fill(a, 0, 512))
		require.NoError(r, e.Record(r.s))
		require.NoError(r, side.Wait(e))
		require.NoError(r, r.pool.Use(b, side))
		require.NoError(r, side.Copy(b, a, 512))
		require.NoError(r, r.pool.Free(a))
		require.NoError(r, r.pool.Free(b))
	}
}

func TestSteadyStepAllocatesNothing(t *testing.T) {
	if reliability.Racing {
		t.Skip("sync.Pool drops things under the race detector")
	}
	r := newRig(t, emu.Config{Lazy: true})
	step := steadyStep(r, r.kernel(launchSource, "nothing"), cuda.NewArgs(), r.stream(), r.event())
	step()
	before := r.dev.Stats()
	require.Zero(t, testing.AllocsPerRun(100, step))
	after := r.dev.Stats()
	require.Equal(t, int64(101), after.Launches-before.Launches)
	after.Launches = before.Launches
	require.Equal(t, before, after)
}

// Lazy streams queue and do not run, so only the host's cost is measured.
func BenchmarkLaunch(b *testing.B) {
	r := newRig(b, emu.Config{Lazy: true})
	f, y, args := r.kernel(launchSource, "dynamic"), r.alloc(512), cuda.NewArgs()
	b.ReportAllocs()
	for i := range b.N {
		if err := r.s.Launch(f, dim(1), dim(1), 4, args.Reset().Ptr(y).I32(1)); err != nil {
			b.Fatal(err)
		}
		if i%4096 == 4095 {
			b.StopTimer()
			r.s.Sync()
			b.StartTimer()
		}
	}
}

func BenchmarkPool(b *testing.B) {
	r := newRig(b, emu.Config{})
	b.ReportAllocs()
	for b.Loop() {
		p, err := r.pool.Alloc(r.s, 1000)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.pool.Free(p); err != nil {
			b.Fatal(err)
		}
	}
}
