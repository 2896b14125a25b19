// What kernels share. NVRTC compiles it without any header; RINGO_EMU is set by
// the emulator's g++, whose shim supplies the same built-ins.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

// 16-bit floats are stored, never computed with: bf16 and f16 are their bits.
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }

// Rounding is to nearest, ties to even.
#ifdef RINGO_EMU
template <> inline bf16 from_float<bf16>(float x) { bf16 r; r.bits = emu_bf16(x); return r; }
template <> inline f16 from_float<f16>(float x) { f16 r; r.bits = emu_f16(x); return r; }
inline float to_float(f16 x) { return emu_f16_float(x.bits); }
#else
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
template <> __device__ __forceinline__ f16 from_float<f16>(float x) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
  return r;
}
__device__ __forceinline__ float to_float(f16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
#endif

// Wide<E>::type is what elements of type E are computed in: 16-bit floats in float.
template <class E> struct Wide { typedef E type; };
template <> struct Wide<bf16> { typedef float type; };
template <> struct Wide<f16> { typedef float type; };

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

#define FULL_WARP 0xffffffffu

// warp_sum adds a value over the warp in a fixed order; all lanes get the sum.
template <class E> __device__ __forceinline__ E warp_sum(E v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
  return v;
}
