package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

const preludeSource = `
extern "C" __global__ void to_bf16(bf16* y, const float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = from_float<bf16>(x[i]);
}
extern "C" __global__ void to_f16(f16* y, const float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = from_float<f16>(x[i]);
}
extern "C" __global__ void of_bf16(float* y, const bf16* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = to_float(x[i]);
}
extern "C" __global__ void of_f16(float* y, const f16* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = to_float(x[i]);
}
extern "C" __global__ void sum(double* y, const float* x) {
  float v = x[threadIdx.x];
  y[2 * threadIdx.x] = warp_sum(v);
  y[2 * threadIdx.x + 1] = warp_sum((double)v + 0x1p-30);
}
extern "C" __global__ void lanes(int* y) {
  int t = threadIdx.x;
  y[t] = __shfl_sync(FULL_WARP, t, 5);
  y[t + 32] = __shfl_up_sync(FULL_WARP, t, 3);
  y[t + 64] = __shfl_down_sync(FULL_WARP, t, 3, 8);
  y[t + 96] = __shfl_xor_sync(FULL_WARP, t, 9);
  y[t + 128] = __ballot_sync(FULL_WARP, t % 3 == 0);
  y[t + 160] = __any_sync(FULL_WARP, t == 7) + 2 * __all_sync(FULL_WARP, t < 32) + 4 * __all_sync(FULL_WARP, t < 31);
  y[t + 192] = t < 16 ? __shfl_xor_sync(0x0000ffffu, t, 15) : __shfl_xor_sync(0xffff0000u, t, 8);
  y[t + 224] = __syncthreads_count(t % 5 == 0) + 100 * __syncthreads_or(t == 3) + 200 * __syncthreads_and(t < 31);
}
extern "C" __global__ void atomics(int* y, float* z) {
  atomicAdd(&y[0], (int)threadIdx.x);
  atomicMax(&y[1], (int)threadIdx.x);
  atomicAdd(z, 1.f);
  for (int i = 0; i < 1000; i++) atomicAdd(&y[2], 1);
}`

// halves are float32 values around every rounding of a 16-bit float: the bits of
// each, the middle to the next, and both neighbours of the middle.
func halves(widen func(uint16) float32) []float32 {
	var out []float32
	for b := range uint32(1 << 16) {
		f := math.Float32bits(widen(uint16(b)))
		next := math.Float32bits(widen(uint16(b + 1)))
		middle := f + (next-f)/2
		for _, v := range []uint32{f, middle - 1, middle, middle + 1} {
			out = append(out, math.Float32frombits(v))
		}
	}
	return out
}

func TestBF16(t *testing.T) {
	r := newRig(t, emu.Config{})
	widen := func(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }
	x := halves(widen)
	y := r.alloc(2 * len(x))
	require.NoError(t, r.s.Launch(r.kernel(preludeSource, "to_bf16"), dim(1), dim(256), 0, cuda.NewArgs().Ptr(y).Ptr(r.put(x)).I32(len(x))))
	got := get[uint16](r, r.s, y, len(x))
	for i, f := range x {
		u := math.Float32bits(f)
		want := uint16((u + 0x7fff + u>>16&1) >> 16)
		if f != f {
			want = 0x7fff
		}
		if got[i] != want {
			t.Fatalf("%v (%#x): %#x, want %#x", f, u, got[i], want)
		}
	}
	back := r.alloc(4 * len(x))
	require.NoError(t, r.s.Launch(r.kernel(preludeSource, "of_bf16"), dim(1), dim(256), 0, cuda.NewArgs().Ptr(back).Ptr(y).I32(len(x))))
	for i, f := range get[float32](r, r.s, back, len(x)) {
		if math.Float32bits(f) != math.Float32bits(widen(got[i])) {
			t.Fatalf("%#x: %v", got[i], f)
		}
	}
}

// f16 widens a half by its definition.
func f16(b uint16) float32 {
	sign, exp, frac := float64(1), int(b>>10&31), float64(b&1023)
	if b>>15 != 0 {
		sign = -1
	}
	switch {
	case exp == 31 && frac != 0:
		return float32(math.NaN())
	case exp == 31:
		return float32(math.Inf(int(sign)))
	case exp == 0:
		return float32(sign * math.Ldexp(frac, -24))
	}
	return float32(sign * math.Ldexp(1024+frac, exp-25))
}

func TestF16(t *testing.T) {
	r := newRig(t, emu.Config{})
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	y := r.alloc(4 << 16)
	require.NoError(t, r.s.Launch(r.kernel(preludeSource, "of_f16"), dim(1), dim(256), 0, cuda.NewArgs().Ptr(y).Ptr(r.put(all)).I32(1<<16)))
	wide := get[float32](r, r.s, y, 1<<16)
	for i, f := range wide {
		if want := f16(uint16(i)); f != want && !(f != f && want != want) {
			t.Fatalf("%#x: %v, want %v", i, f, want)
		}
	}
	back := r.alloc(2 << 16)
	require.NoError(t, r.s.Launch(r.kernel(preludeSource, "to_f16"), dim(1), dim(256), 0, cuda.NewArgs().Ptr(back).Ptr(y).I32(1<<16)))
	for i, b := range get[uint16](r, r.s, back, 1<<16) {
		if b != uint16(i) && wide[i] == wide[i] {
			t.Fatalf("%#x became %#x", i, b)
		}
	}
	ties := r.put([]float32{2049, 2051, 65519, 65520, 1e-8, float32(math.Ldexp(1, -25)), float32(math.Ldexp(3, -25))})
	require.NoError(t, r.s.Launch(r.kernel(preludeSource, "to_f16"), dim(1), dim(32), 0, cuda.NewArgs().Ptr(back).Ptr(ties).I32(7)))
	require.Equal(t, []uint16{0x6800, 0x6802, 0x7bff, 0x7c00, 0, 0, 2}, get[uint16](r, r.s, back, 7))
}

func TestWarpSum(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		r := newRig(t, emu.Config{Reverse: reverse})
		x := make([]float32, 96)
		for i := range x {
			x[i] = 1 + float32(i)
		}
		y := r.alloc(16 * len(x))
		require.NoError(t, r.s.Launch(r.kernel(preludeSource, "sum"), dim(1), dim(len(x)), 0, cuda.NewArgs().Ptr(y).Ptr(r.put(x))))
		got := get[float64](r, r.s, y, 2*len(x))
		for i := range x {
			sum := float64(32*33/2 + i/32*32*32)
			require.Equal(t, []float64{sum, sum + 0x1p-25}, got[2*i:2*i+2], i)
		}
	}
}

func TestLanes(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		r := newRig(t, emu.Config{Reverse: reverse})
		y := r.alloc(1024)
		require.NoError(t, r.s.Launch(r.kernel(preludeSource, "lanes"), dim(1), dim(32), 0, cuda.NewArgs().Ptr(y)))
		got := get[int32](r, r.s, y, 256)
		for i := range int32(32) {
			up, down := max(i-3, i&^31), i
			if i < 3 {
				up = i
			}
			if i%8+3 < 8 {
				down = i + 3
			}
			half := i ^ 15
			if i >= 16 {
				half = i ^ 8
			}
			want := []int32{5, up, down, i ^ 9, 0x49249249, 3, half, 7 + 100}
			for k, w := range want {
				require.Equal(t, w, got[32*k+int(i)], "lane %d, row %d", i, k)
			}
		}
	}
}

// Kernels of two streams run at the same time, and their atomic operations are
// atomic.
func TestAtomics(t *testing.T) {
	r := newRig(t, emu.Config{})
	side := r.stream()
	y, z := r.put([]int32{0, -1, 0}), r.put([]float32{0})
	require.NoError(t, r.s.Sync())
	f, args := r.kernel(preludeSource, "atomics"), cuda.NewArgs().Ptr(y).Ptr(z)
	for range 4 {
		require.NoError(t, r.s.Launch(f, dim(8), dim(64), 0, args))
		require.NoError(t, side.Launch(f, dim(8), dim(64), 0, args))
	}
	require.NoError(t, side.Sync())
	require.Equal(t, []int32{64 * 2016, 63, 64 * 64 * 1000}, get[int32](r, r.s, y, 3))
	require.Equal(t, []float32{64 * 64}, get[float32](r, r.s, z, 1))
}
