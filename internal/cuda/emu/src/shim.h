// CPU emulation of a CUDA kernel module: one OS thread, fibers for CUDA threads.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <mutex>
#include <type_traits>
#include <utility>
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static
#define __constant__ static
#define __align__(n) alignas(n)
#define __restrict__ __restrict
struct uint3_ { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
static inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
static uint3_ threadIdx, blockIdx;
static dim3 blockDim, gridDim;
alignas(64) static unsigned char emu_dynsmem[232448];

#define RINGO_EMU 1
namespace emu {
enum State : uint8_t { Run, WaitBlock, WaitWarp, Idle };
struct Fiber { void* sp; unsigned tid; uint3_ idx; State st; uint32_t gen; unsigned char* stack; };
struct Warp { uint32_t gen, arrived, alive; uint64_t slot[2][32]; };
constexpr size_t StackBytes = 64 << 10;
static Fiber fib[1024];
static Warp warp[32];
static void* sched_sp;
static Fiber* cur;
static unsigned nthreads, next_tid, alive, arrived, nfib;
static uint32_t bgen;
static void (*body)(void**);
static void** args;
static uint64_t switches;
static const bool rev = getenv("EMU_REVERSE") != 0; // threads in descending order: shows order-dependent kernels

extern "C" void emu_switch(void** save, void* to);
asm(".text\n.local emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size emu_switch,.-emu_switch\n");

static void yield(State s, uint32_t gen) {
  Fiber* f = cur;
  f->st = s; f->gen = gen; f->idx = threadIdx;
  emu_switch(&f->sp, sched_sp);
  threadIdx = f->idx;
}
static inline void arrive_exit(unsigned tid) { // an exited thread no longer holds anyone up
  alive--;
  if (arrived && arrived == alive) { arrived = 0; bgen++; }
  Warp& w = warp[tid >> 5];
  w.alive &= ~(1u << (tid & 31));
}
static void entry() { // one fiber runs threads until one of them blocks; the rest go to new fibers
  for (;;) {
    while (next_tid < nthreads) {
      unsigned t = next_tid++; if (rev) t = nthreads - 1 - t;
      cur->tid = t;
      threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
      body(args);
      arrive_exit(cur->tid);
    }
    yield(Idle, 0);
  }
}
static void start(Fiber* f) {
  if (!f->stack) f->stack = (unsigned char*)mmap(0, StackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void** sp = (void**)(f->stack + StackBytes - 64);
  *--sp = 0; *--sp = (void*)entry;
  for (int i = 0; i < 6; i++) *--sp = 0;
  f->sp = sp; f->st = Run;
}
static inline bool ready(Fiber* f) {
  switch (f->st) {
    case Run: return true;
    case WaitBlock: return f->gen != bgen;
    case WaitWarp: return f->gen != warp[f->tid >> 5].gen;
    default: return false;
  }
}
static int run_block() { // 0 ok, 1 deadlock (barrier not reached by all)
  next_tid = 0; alive = nthreads; arrived = 0; nfib = 0;
  for (unsigned w = 0; w * 32 < nthreads; w++) {
    unsigned n = nthreads - w * 32; warp[w].alive = n >= 32 ? ~0u : (1u << n) - 1; warp[w].arrived = 0;
  }
  while (alive) {
    bool any = false;
    for (unsigned i = 0; i < nfib; i++) if (ready(&fib[i])) {
      any = true; cur = &fib[i]; cur->st = Run; switches++; emu_switch(&sched_sp, cur->sp);
    }
    while (next_tid < nthreads) { any = true; Fiber* f = &fib[nfib++]; start(f); cur = f; switches++; emu_switch(&sched_sp, f->sp); }
    if (!any) return 1;
  }
  return 0;
}
static void block_barrier() {
  uint32_t g = bgen;
  if (++arrived == alive) { arrived = 0; bgen++; return; }
  yield(WaitBlock, g);
}
static uint64_t* warp_exchange(uint32_t mask, uint64_t v) {
  Warp& w = warp[cur->tid >> 5];
  uint32_t g = w.gen;
  uint64_t* s = w.slot[g & 1];
  s[cur->tid & 31] = v;
  w.arrived |= 1u << (cur->tid & 31);
  if ((w.arrived & mask) == (mask & w.alive)) { w.arrived = 0; w.gen++; } else yield(WaitWarp, g);
  return s;
}
template <class T> static T shfl(uint32_t mask, T v, unsigned src) {
  static_assert(sizeof(T) <= 8, "");
  uint64_t b = 0; memcpy(&b, &v, sizeof v);
  b = warp_exchange(mask, b)[src & 31]; memcpy(&v, &b, sizeof v);
  return v;
}
template <class... A, size_t... I> static void call(void (*f)(A...), void** p, std::index_sequence<I...>) {
  f(*(std::remove_cv_t<std::remove_reference_t<A>>*)p[I]...);
}
template <class... A> static void invoke(void (*f)(A...), void** p) { call(f, p, std::index_sequence_for<A...>{}); }
static std::mutex mu;
static int launch(void (*b)(void**), const unsigned* g, const unsigned* blk, unsigned shmem, void** p) {
  std::lock_guard<std::mutex> l(mu);
  if (blk[0] * blk[1] * blk[2] > 1024 || shmem > sizeof emu_dynsmem) return 1;
  body = b; args = p; gridDim = {g[0], g[1], g[2]}; blockDim = {blk[0], blk[1], blk[2]}; nthreads = blk[0] * blk[1] * blk[2];
  for (unsigned z = 0; z < g[2]; z++) for (unsigned y = 0; y < g[1]; y++) for (unsigned x = 0; x < g[0]; x++) {
    blockIdx = {x, y, z};
    memset(emu_dynsmem, 0xff, shmem); // NaN: uninitialised shared memory shows
    if (run_block()) { fprintf(stderr, "emu: barrier deadlock in block %u,%u,%u\n", x, y, z); return 719; }
  }
  return 0;
}
}
#define EMU_EXPORT(k) extern "C" __attribute__((visibility("default"))) int emu_launch_##k(const unsigned* g, const unsigned* b, unsigned sh, void** p) { \
  return emu::launch([](void** q) { emu::invoke(k, q); }, g, b, sh, p); }
extern "C" __attribute__((visibility("default"))) uint64_t emu_switches() { return emu::switches; }
static inline void __syncthreads() { emu::block_barrier(); }
static inline void __syncwarp(unsigned m = ~0u) { emu::warp_exchange(m, 0); }
template <class T> static inline T __shfl_xor_sync(unsigned m, T v, int x) { return emu::shfl(m, v, (emu::cur->tid & 31) ^ x); }
template <class T> static inline T __shfl_sync(unsigned m, T v, int s) { return emu::shfl(m, v, s); }
template <class T> static inline T __shfl_down_sync(unsigned m, T v, unsigned d) { unsigned l = emu::cur->tid & 31; return emu::shfl(m, v, l + d > 31 ? l : l + d); }
template <class T> static inline T __shfl_up_sync(unsigned m, T v, unsigned d) { unsigned l = emu::cur->tid & 31; return emu::shfl(m, v, l < d ? l : l - d); }
static inline unsigned __ballot_sync(unsigned m, int p) { uint64_t* s = emu::warp_exchange(m, p != 0); unsigned r = 0; for (int i = 0; i < 32; i++) if (m >> i & 1 && s[i]) r |= 1u << i; return r; }
template <class T> static inline T atomicAdd(T* p, T v) { T o = *p; *p = o + v; return o; }
template <class T> static inline T atomicMax(T* p, T v) { T o = *p; if (v > o) *p = v; return o; }
template <class T> static inline T atomicCAS(T* p, T c, T v) { T o = *p; if (o == c) *p = v; return o; }
static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
#define __expf(x) expf(x)
template <class T> static inline T __ldg(const T* p) { return *p; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }

static inline float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
static inline unsigned short emu_bf16(float x) { unsigned u = __float_as_uint(x); if (x != x) return 0x7fff; return (u + 0x7fff + (u >> 16 & 1)) >> 16; }
static inline unsigned short emu_f16(float x) { _Float16 h = x; unsigned short r; memcpy(&r, &h, 2); return r; }
static inline float emu_f16_float(unsigned short b) { _Float16 h; memcpy(&h, &b, 2); return h; }
