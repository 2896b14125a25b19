// What the kernels of package tensor/cuda share. A file is compiled for one element type, ELEM.

// 16 bytes that are moved only.
struct __align__(16) vec16 { u64 lo, hi; };

typedef ELEM T;

// Wide<E>::type is what elements of type E are computed in: 16-bit floats in float.
template <class E> struct Wide { typedef E type; };
template <> struct Wide<bf16> { typedef float type; };
template <> struct Wide<f16> { typedef float type; };
typedef Wide<T>::type W;

template <class E> struct IsFloat { static constexpr bool value = false; };
template <> struct IsFloat<float> { static constexpr bool value = true; };
template <> struct IsFloat<double> { static constexpr bool value = true; };
template <> struct IsFloat<bf16> { static constexpr bool value = true; };
template <> struct IsFloat<f16> { static constexpr bool value = true; };

template <class E> __device__ __forceinline__ E widen(E x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return to_float(x); }
__device__ __forceinline__ float widen(f16 x) { return to_float(x); }

// narrow rounds a value to E once.
template <class E> struct Narrow {
  static __device__ __forceinline__ E of(typename Wide<E>::type x) { return x; }
};
template <> struct Narrow<bf16> {
  static __device__ __forceinline__ bf16 of(float x) { return from_float<bf16>(x); }
};
template <> struct Narrow<f16> {
  static __device__ __forceinline__ f16 of(float x) { return from_float<f16>(x); }
};
template <class E> __device__ __forceinline__ E narrow(typename Wide<E>::type x) { return Narrow<E>::of(x); }

// Pack<E, N> is N elements that are loaded and stored at once.
template <class E, int N> struct __align__(sizeof(E) * N) Pack { E v[N]; };

__device__ __forceinline__ bool aligned(const void* p, int bytes) { return (u64)p % bytes == 0; }

// The elements of a grid-stride loop.
__device__ __forceinline__ i64 first_item() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 all_threads() { return (i64)gridDim.x * blockDim.x; }

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
