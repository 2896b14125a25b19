// What the kernels of package tensor/cuda share. A file is compiled for one element type, ELEM.

// 16 bytes that are only copied.
struct __align__(16) vec16 { u64 lo, hi; };

typedef ELEM T;
typedef Wide<T>::type W;

// Integers wrap around. C++ does not define that for signed integers, so they are added as the unsigned type U.
template <class E> struct Unsigned { typedef E type; };
template <> struct Unsigned<int> { typedef u32 type; };
template <> struct Unsigned<i64> { typedef u64 type; };
typedef Unsigned<W>::type U;
template <class E> __device__ __forceinline__ E plus(E a, E b) { return (E)((typename Unsigned<E>::type)a + (typename Unsigned<E>::type)b); }

template <class E> struct IsFloat { static constexpr bool value = false; };
template <> struct IsFloat<float> { static constexpr bool value = true; };
template <> struct IsFloat<double> { static constexpr bool value = true; };
template <> struct IsFloat<bf16> { static constexpr bool value = true; };
template <> struct IsFloat<f16> { static constexpr bool value = true; };

__device__ __forceinline__ bool aligned(const void* p, int bytes) { return (u64)p % bytes == 0; }

// The elements of a grid-stride loop.
__device__ __forceinline__ i64 first_item() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 all_threads() { return (i64)gridDim.x * blockDim.x; }

// Functions in both precisions.
__device__ __forceinline__ float exp_(float x) { return expf(x); }
__device__ __forceinline__ double exp_(double x) { return exp(x); }
__device__ __forceinline__ float tanh_(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_(double x) { return tanh(x); }
__device__ __forceinline__ float log_(float x) { return logf(x); }
__device__ __forceinline__ double log_(double x) { return log(x); }
__device__ __forceinline__ float sqrt_(float x) { return sqrtf(x); }
__device__ __forceinline__ double sqrt_(double x) { return sqrt(x); }

// exp2_ is 2^x; of float, with an error of 2 units in the last place.
#ifdef RINGO_EMU
inline float exp2_(float x) { return exp2f(x); }
#else
__device__ __forceinline__ float exp2_(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif

// fast_exp is exp(x) for the terms of a sum whose largest is about 1: relative to that, its error is that of exp_.
__device__ __forceinline__ float fast_exp(float x) { return exp2_(x * 1.44269504f); }
__device__ __forceinline__ double fast_exp(double x) { return exp(x); }

// over is x/y. If T has 16 bits, the last two bits of the float may differ, which are rounded away, and a finite y above 2^126 gives 0.
__device__ __forceinline__ float over(float x, float y) { return sizeof(T) == 2 ? __fdividef(x, y) : x / y; }
__device__ __forceinline__ double over(double x, double y) { return x / y; }

// Rows of a matrix, a block for each.

template <int N> struct Count { enum { value = N }; };

// pieces calls f(i, Count<n>) for the pieces i..i+n of a row that this thread has: 16 bytes if vec, else one element.
template <class F> __device__ __forceinline__ void pieces(i64 cols, bool vec, F f) {
  constexpr int N = 16 / sizeof(T);
  if (vec)
    for (i64 i = (i64)threadIdx.x * N; i < cols; i += (i64)blockDim.x * N) f(i, Count<N>());
  else
    for (i64 i = threadIdx.x; i < cols; i += blockDim.x) f(i, Count<1>());
}

// whole says whether rows of cols elements from p on begin at multiples of 16 bytes and end at one.
__device__ __forceinline__ bool whole(const void* p, i64 cols) { return cols * sizeof(T) % 16 == 0 && aligned(p, 16); }

// dynamic_shared is the shared memory that a launch asks for.
template <class E> __device__ __forceinline__ E* dynamic_shared() {
  extern __shared__ vec16 shared[];
  return (E*)shared;
}

template <int N> __device__ __forceinline__ Pack<T, N> load(const T* p) { return *(const Pack<T, N>*)p; }

struct Words { u32 w[4]; };

// philox is a block of the generator Philox4x32-10 (Salmon et al. 2011) under key, as in internal/kernel.
__device__ __forceinline__ Words philox(u64 key, u64 n) {
  u32 c0 = (u32)n, c1 = (u32)(n >> 32), c2 = 0, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int i = 0; i < 10; i++) {
    u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Words b = {{c0, c1, c2, c3}};
  return b;
}

// word is word i%4.
__device__ __forceinline__ u32 word(const Words& r, u64 i) { return (i & 2) ? ((i & 1) ? r.w[3] : r.w[2]) : ((i & 1) ? r.w[1] : r.w[0]); }

// check_index reports whether i is in [0, n). If not, it notes operation and index in *bad, for the host to find.
__device__ __forceinline__ bool check_index(u64* bad, u32 op, i64 i, i64 n) {
  if (i >= 0 && i < n) return true;
  *(volatile u64*)bad = (u64)op << 56 | 1ull << 55 | ((u64)i & ((1ull << 55) - 1));
  return false;
}

// Strided says where the elements of up to three operands are: dimension 0 is the innermost. (strided in strided.go)
struct Strided {
  i64 n;     // elements
  int rank;  // dimensions
  int vec;   // not 0: VEC elements of dimension 0 can be loaded and stored at once
  i64 dim[6];
  i64 stride[3][6];
};

// Place is the offsets of the operands of one element.
struct Place { i64 at[3]; };

// locate finds element i.
__device__ __forceinline__ Place locate(const Strided& s, i64 i) {
  Place p = {{0, 0, 0}};
  if (s.n >> 31) {  // 64-bit divisions are slow, and much code
#pragma unroll 1
    for (int d = 0; d < s.rank; d++) {
      i64 q = i / s.dim[d], k = i - q * s.dim[d];
      i = q;
      for (int j = 0; j < 3; j++) p.at[j] += k * s.stride[j][d];
    }
    return p;
  }
  u32 rest = (u32)i;
#pragma unroll
  for (int d = 0; d < 6; d++) {
    if (d < s.rank) {
      u32 k = rest;
      if (d < s.rank - 1) {  // the outermost dimension needs no division
        u32 q = rest / (u32)s.dim[d];
        k = rest - q * (u32)s.dim[d];
        rest = q;
      }
#pragma unroll
      for (int j = 0; j < 3; j++) p.at[j] += (i64)k * s.stride[j][d];
    }
  }
  return p;
}
