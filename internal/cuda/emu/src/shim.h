// CUDA's language and built-ins for g++: what a kernel may use. All of CUDA's
// names that are not here do not compile, which tells that the emulator needs them.
#pragma once
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <time.h>
#include "hopper.h"
#include "mma.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("emu_shared")))
#define __constant__ static const
#define __grid_constant__
#define __align__(n) alignas(n)
#define __restrict__ __restrict

// Vector types.
#define EMU_VECTORS(T, n)                                                                                      \
  struct alignas(2 * sizeof(T)) n##2 { T x, y; };                                                              \
  struct n##3 { T x, y, z; };                                                                                  \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) n##4 { T x, y, z, w; };                              \
  static inline n##2 make_##n##2(T x, T y) { return {x, y}; }                                                  \
  static inline n##3 make_##n##3(T x, T y, T z) { return {x, y, z}; }                                          \
  static inline n##4 make_##n##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMU_VECTORS_BUT_3(T, n)                                                                                \
  struct alignas(2 * sizeof(T)) n##2 { T x, y; };                                                              \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) n##4 { T x, y, z, w; };                              \
  static inline n##2 make_##n##2(T x, T y) { return {x, y}; }                                                  \
  static inline n##4 make_##n##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(float, float)
EMU_VECTORS(double, double)
EMU_VECTORS(int, int)
EMU_VECTORS(signed char, char)
EMU_VECTORS(unsigned char, uchar)
EMU_VECTORS(short, short)
EMU_VECTORS(unsigned short, ushort)
EMU_VECTORS(long long, longlong)
EMU_VECTORS(unsigned long long, ulonglong)
EMU_VECTORS_BUT_3(unsigned, uint)
static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// Barriers and the warp. The line tells different barriers apart.
#define __syncthreads() emu::barrier(__LINE__)
#define __syncthreads_or(p) emu::barrier_vote(__LINE__, (p) != 0, 0)
#define __syncthreads_and(p) emu::barrier_vote(__LINE__, (p) != 0, 1)
#define __syncthreads_count(p) emu::barrier_vote(__LINE__, (p) != 0, 2)
namespace emu {
static inline unsigned lane() { return cur->tid & 31; }
// in_part is the lane s of the part of width w that this lane is in.
static inline unsigned in_part(unsigned s, int w) { return (lane() & ~(w - 1)) | (s & (w - 1)); }
static inline unsigned down(unsigned d, int w) { return (lane() & (w - 1)) + d < (unsigned)w ? lane() + d : lane(); }
static inline unsigned up(unsigned d, int w) { return (lane() & (w - 1)) >= d ? lane() - d : lane(); }
static inline unsigned other(unsigned x, int w) { return ((lane() ^ x) & ~(w - 1)) <= (lane() & ~(w - 1)) ? lane() ^ x : lane(); }
static inline unsigned ballot(uint32_t mask, bool p, int line) { return (unsigned)exchange(mask, p, 0, Ballot, line); }
static constexpr unsigned all = ~0u;
static constexpr int width(int w = 32) { return w; }
}  // namespace emu
#define __syncwarp(...) emu::ballot(emu::mask(__VA_ARGS__), false, __LINE__)
namespace emu { static constexpr uint32_t mask(uint32_t m = ~0u) { return m; } }
#define __shfl_sync(m, v, s, ...) emu::shuffle(m, v, emu::in_part(s, emu::width(__VA_ARGS__)), __LINE__)
#define __shfl_xor_sync(m, v, x, ...) emu::shuffle(m, v, emu::other(x, emu::width(__VA_ARGS__)), __LINE__)
#define __shfl_down_sync(m, v, d, ...) emu::shuffle(m, v, emu::down(d, emu::width(__VA_ARGS__)), __LINE__)
#define __shfl_up_sync(m, v, d, ...) emu::shuffle(m, v, emu::up(d, emu::width(__VA_ARGS__)), __LINE__)
#define __ballot_sync(m, p) emu::ballot(m, (p) != 0, __LINE__)
#define __any_sync(m, p) (emu::ballot(m, (p) != 0, __LINE__) != 0)
#define __all_sync(m, p) (emu::ballot(m, (p) == 0, __LINE__) == 0)

// Atomics: streams are threads, so these are real.
namespace emu {
template <class T> struct Bits { typedef std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t> type; };
template <class T, class F> static T update(T* p, F f) {
  typedef typename Bits<T>::type B;
  B old = __atomic_load_n((B*)p, __ATOMIC_SEQ_CST), next;
  T o;
  do {
    memcpy(&o, &old, sizeof o);
    T n = f(o);
    memcpy(&next, &n, sizeof n);
  } while (!__atomic_compare_exchange_n((B*)p, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return o;
}
template <class T> struct Same { typedef T type; };
template <class T> using Arg = typename Same<T>::type;  // not deduced
}  // namespace emu
#define EMU_ATOMIC(name, expr) \
  template <class T> static inline T name(T* p, emu::Arg<T> v) { return emu::update(p, [v](T o) -> T { return expr; }); }
EMU_ATOMIC(atomicAdd, o + v)
EMU_ATOMIC(atomicSub, o - v)
EMU_ATOMIC(atomicMax, o > v ? o : v)
EMU_ATOMIC(atomicMin, o < v ? o : v)
EMU_ATOMIC(atomicExch, ((void)o, v))
EMU_ATOMIC(atomicAnd, o & v)
EMU_ATOMIC(atomicOr, o | v)
EMU_ATOMIC(atomicXor, o ^ v)
template <class T> static inline T atomicCAS(T* p, emu::Arg<T> c, emu::Arg<T> v) {
  return emu::update(p, [c, v](T o) -> T { return o == c ? v : o; });
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __threadfence(); }
static inline void __threadfence_system() { __threadfence(); }
static inline void __nanosleep(unsigned ns) {
  timespec t = {0, (long)ns};
  nanosleep(&t, nullptr);
}
static inline void __trap() { emu::fail(emu::LaunchFailed, "__trap()"); }
#define assert_failed(e) emu::fail(710, "%s:%d: assertion failed: %s", __FILE__, __LINE__, #e)
#undef assert
#define assert(e) ((e) ? (void)0 : assert_failed(e))

// Loads and stores with cache hints.
#define EMU_LOAD(name) template <class T> static inline T name(const T* p) { return *p; }
EMU_LOAD(__ldg) EMU_LOAD(__ldcg) EMU_LOAD(__ldca) EMU_LOAD(__ldcs) EMU_LOAD(__ldlu) EMU_LOAD(__ldcv)
#define EMU_STORE(name) template <class T> static inline void name(T* p, emu::Arg<T> v) { *p = v; }
EMU_STORE(__stcg) EMU_STORE(__stcs) EMU_STORE(__stwb) EMU_STORE(__stwt)

// Bits.
template <class To, class From> static inline To emu_cast(From v) {
  static_assert(sizeof(To) == sizeof(From), "");
  To r;
  memcpy(&r, &v, sizeof r);
  return r;
}
static inline float __uint_as_float(unsigned u) { return emu_cast<float>(u); }
static inline float __int_as_float(int u) { return emu_cast<float>(u); }
static inline unsigned __float_as_uint(float f) { return emu_cast<unsigned>(f); }
static inline int __float_as_int(float f) { return emu_cast<int>(f); }
static inline double __longlong_as_double(long long u) { return emu_cast<double>(u); }
static inline long long __double_as_longlong(double f) { return emu_cast<long long>(f); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return (unsigned)((((uint64_t)hi << 32 | lo) << (s & 31)) >> 32); }

// Arithmetic.
#define EMU_MINMAX(T)                                              \
  static inline T min(T a, T b) { return a < b ? a : b; }          \
  static inline T max(T a, T b) { return a > b ? a : b; }
EMU_MINMAX(int) EMU_MINMAX(unsigned) EMU_MINMAX(long) EMU_MINMAX(unsigned long) EMU_MINMAX(long long) EMU_MINMAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
static inline double rsqrt(double x) { return 1. / sqrt(x); }
static inline float __saturatef(float x) { return x < 0.f || x != x ? 0.f : x > 1.f ? 1.f : x; }
static inline float __fdividef(float a, float b) { return fabsf(b) > 0x1p126f && fabsf(b) < INFINITY ? a * 0.f : a / b; }
static inline float __frcp_rn(float a) { return 1.f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
// The bytes of a and b are numbered 0 to 7; byte i of the result is the one that digit i of s names.
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  unsigned long long all = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    unsigned v = (unsigned)(all >> 8 * (s >> 4 * i & 7)) & 0xff;
    if (s >> 4 * i & 8) v = v & 0x80 ? 0xff : 0;
    r |= v << 8 * i;
  }
  return r;
}
// glibc declares some of these names for itself.
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) sincosf(x, s, c)
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline long long clock64() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }

// 16-bit floats, rounded to nearest, ties to even.
static inline unsigned short emu_bf16(float x) {
  unsigned u = __float_as_uint(x);
  return x != x ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static inline unsigned short emu_f16(float x) {
  return x != x ? 0x7fff : emu_cast<unsigned short>((_Float16)x);
}
static inline float emu_f16_float(unsigned short b) { return (float)emu_cast<_Float16>(b); }
