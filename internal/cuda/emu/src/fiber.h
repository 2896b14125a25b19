// How a block runs: its threads are fibers of one OS thread. A thread runs until
// it waits at a barrier or for its warp, or ends; a warp runs until all of it
// waits at a barrier, then the next one does. So warps are as far apart as their
// barriers allow, and a missing barrier shows. Every module has this state of
// its own, and every stream a copy of the module.
#pragma once
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <type_traits>
#include <utility>
#include "kernel.h"

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
enum { warpSize = 32 };

namespace emu {
enum : int { IllegalAddress = 700, Misaligned = 716, LaunchFailed = 719 };
enum State : uint8_t { Ready, AtBarrier, InWarp, Idle };
enum Kind : uint8_t { Shuffle, Ballot, Joint };
struct Fiber { void* sp; unsigned tid; uint3 idx; State st; };
// Warp has a fiber for each thread that had to wait, and holds what its waiting
// lanes brought: each says for whom it waits and which lane's value it wants.
struct Warp { unsigned threads, started, nfibers; uint32_t alive, waiting, want[32], source[32]; uint64_t in[32], out[32]; int line[32]; Kind kind[32]; Fiber* lane[32]; };

static Fiber fibers[32][32];
static Warp warps[32];
static void* scheduler;
static Fiber* cur;
static unsigned nthreads, nwarps, this_warp, alive, arrived;
static int barrier_line;
static const EmuKernel* kernel;
static EmuLaunch* launch;
static int failed;
static uint64_t blocks_run;

extern "C" void emu_switch(void** save, void* to);
asm(".text\n.local emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size emu_switch,.-emu_switch\n");

static void yield(State s) {
  Fiber* f = cur;
  f->st = s;
  f->idx = threadIdx;
  emu_switch(&f->sp, scheduler);
  threadIdx = f->idx;
}

// fail ends the launch. The fibers are left as they are.
template <class... A> [[noreturn]] static void fail(int code, const char* format, A... a) {
  char text[300];
  snprintf(text, sizeof text, format, a...);
  snprintf(launch->detail, sizeof launch->detail, "%s in thread (%u,%u,%u) of block (%u,%u,%u)", text, threadIdx.x, threadIdx.y,
           threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
  failed = code;
  void* dead;
  emu_switch(&dead, scheduler);
  abort();
}

static void release_barrier() {
  arrived = 0;
  for (unsigned w = 0; w < nwarps; w++)
    for (unsigned i = 0; i < warps[w].nfibers; i++)
      if (fibers[w][i].st == AtBarrier) fibers[w][i].st = Ready;
}
static void barrier(int line) {
  if (arrived && line != barrier_line) fail(LaunchFailed, "threads of a block wait at different __syncthreads, in lines %d and %d,", barrier_line, line);
  barrier_line = line;
  if (++arrived == alive) return release_barrier();
  yield(AtBarrier);
}

// complete serves the lanes of mask when all of them that are alive wait.
static bool complete(Warp& w, uint32_t mask) {
  mask &= w.alive;
  if ((w.waiting & mask) != mask) return false;
  if (w.kind[__builtin_ctz(mask)] == Joint) return false;  // see together
  uint32_t votes = 0;
  for (unsigned i = 0; i < 32; i++)
    if (mask >> i & 1 && w.in[i]) votes |= 1u << i;
  for (unsigned i = 0; i < 32; i++) {
    if (!(mask >> i & 1)) continue;
    bool there = mask >> w.source[i] & 1;
    w.out[i] = w.kind[i] == Ballot ? votes : there ? w.in[w.source[i]] : ~0ull;  // NaN: no such lane
    if (w.lane[i] != cur) w.lane[i]->st = Ready;
  }
  w.waiting &= ~mask;
  return true;
}
static uint64_t exchange(uint32_t mask, uint64_t value, unsigned source, Kind kind, int line) {
  unsigned lane = cur->tid & 31;
  Warp& w = warps[cur->tid >> 5];
  if (!(mask >> lane & 1)) fail(LaunchFailed, "line %d: a lane waits for its warp with mask %#x, which leaves it out,", line, mask);
  w.in[lane] = value;
  w.source[lane] = source;
  w.want[lane] = mask;
  w.line[lane] = line;
  w.kind[lane] = kind;
  w.lane[lane] = cur;
  w.waiting |= 1u << lane;
  for (unsigned i = 0; i < 32; i++)
    if (mask >> i & w.waiting >> i & 1 && (w.want[i] != mask || w.line[i] != line))
      fail(LaunchFailed, "lanes of a warp meet with masks %#x (line %d) and %#x (line %d)", w.want[i], w.line[i], mask, line);
  if (!complete(w, mask)) yield(InWarp);
  return w.out[lane];
}
template <class T> static T shuffle(uint32_t mask, T v, unsigned source, int line) {
  static_assert(sizeof(T) <= 8, "");
  uint64_t b = 0;
  memcpy(&b, &v, sizeof v);
  b = exchange(mask, b, source & 31, Shuffle, line);
  memcpy(&v, &b, sizeof v);
  return v;
}

// left is called when a thread has ended: it holds nobody up any more.
static void left(unsigned tid) {
  alive--;
  if (arrived && arrived == alive) release_barrier();
  warps[tid >> 5].alive &= ~(1u << (tid & 31));
}
// entry is the first function of a fiber: it runs threads of its warp until one
// waits; the rest go to new fibers.
static void entry() {
  for (;;) {
    Warp& w = warps[this_warp];
    while (w.started < w.threads) {
      unsigned k = w.started++;
      unsigned t = this_warp * 32 + (launch->reverse ? w.threads - 1 - k : k);
      cur->tid = t;
      threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
      kernel->body(launch->args);
      left(cur->tid);
    }
    yield(Idle);
  }
}
static void start(Fiber* f) {
  unsigned char*& stack = launch->stacks[f - fibers[0]];
  if (!stack) {
    auto p = (unsigned char*)mmap(0, StackBytes + StackGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {  // no fiber runs that could fail
      perror("emu: the stack of a thread");
      abort();
    }
    mprotect(p, StackGuard, PROT_NONE);
    stack = p + StackGuard;
  }
  void** sp = (void**)(stack + StackBytes - 64);
  *--sp = 0;
  *--sp = (void*)entry;
  for (int i = 0; i < 6; i++) *--sp = 0;
  f->sp = sp;
  f->st = Ready;
}
static void resume(Fiber* f) {
  cur = f;
  emu_switch(&scheduler, f->sp);
}
static void stuck() {
  snprintf(launch->detail, sizeof launch->detail, "%u of %u threads wait at __syncthreads (line %d) and the others never come, in block (%u,%u,%u)", arrived,
           alive, barrier_line, blockIdx.x, blockIdx.y, blockIdx.z);
  failed = LaunchFailed;
}

// advance lets one thread of a warp run; false: all of them wait or have ended.
static bool advance(unsigned at) {
  Warp& w = warps[at];
  this_warp = at;
  for (unsigned i = 0; i < w.nfibers; i++)
    if (fibers[at][i].st == Ready) return resume(&fibers[at][i]), true;
  if (w.started < w.threads) {
    Fiber* f = &fibers[at][w.nfibers++];
    start(f);
    return resume(f), true;
  }
  // A lane may have ended that others of its warp wait for.
  for (unsigned i = 0; i < w.nfibers; i++)
    if (fibers[at][i].st == InWarp) {
      cur = nullptr;
      if (complete(w, w.want[fibers[at][i].tid & 31])) return true;
    }
  return false;
}
static void run_block() {
  blocks_run++;
  arrived = 0;
  alive = nthreads;
  nwarps = (nthreads + 31) / 32;
  for (unsigned i = 0; i < nwarps; i++) {
    Warp& w = warps[i];
    unsigned n = nthreads - i * 32;
    w.threads = n >= 32 ? 32 : n;
    w.alive = n >= 32 ? ~0u : (1u << n) - 1;
    w.started = w.nfibers = w.waiting = 0;
  }
  while (alive && !failed) {
    bool any = false;
    for (unsigned i = 0; i < nwarps && !failed; i++)
      while (!failed && advance(launch->reverse ? nwarps - 1 - i : i)) any = true;
    if (!any) return stuck();
  }
}

static unsigned char* dynamic_shared() { return launch->dynamic; }
extern "C" unsigned char __start_emu_shared[] __attribute__((weak)), __stop_emu_shared[] __attribute__((weak));

// run runs all blocks, in an order that depends on the seed.
static int run(const EmuKernel* k, EmuLaunch* l) {
  kernel = k, launch = l, failed = 0;
  gridDim = {l->grid[0], l->grid[1], l->grid[2]};
  blockDim = {l->block[0], l->block[1], l->block[2]};
  nthreads = blockDim.x * blockDim.y * blockDim.z;
  uint64_t blocks = (uint64_t)gridDim.x * gridDim.y * gridDim.z, step = l->seed % blocks | 1;
  auto gcd = [](uint64_t a, uint64_t b) { while (b) { uint64_t t = a % b; a = b; b = t; } return a; };
  while (gcd(step, blocks) != 1) step += 2;
  uint64_t at = (l->seed >> 20) % blocks;
  for (uint64_t i = 0; i < blocks && !failed; i++, at = (at + step) % blocks) {
    blockIdx = {(unsigned)(at % gridDim.x), (unsigned)(at / gridDim.x % gridDim.y), (unsigned)(at / gridDim.x / gridDim.y)};
    // NaN: shared memory that is read before it is written shows.
    if (__start_emu_shared) memset(__start_emu_shared, 0xff, __stop_emu_shared - __start_emu_shared);
    memset(l->dynamic, 0xff, l->shared);
    run_block();
  }
  return failed;
}
static void position(unsigned t[3], unsigned b[3]) {
  t[0] = threadIdx.x, t[1] = threadIdx.y, t[2] = threadIdx.z;
  b[0] = blockIdx.x, b[1] = blockIdx.y, b[2] = blockIdx.z;
}

// describe makes the table entry of a kernel; its parameters come from its type.
template <class T> using Plain = std::remove_cv_t<std::remove_reference_t<T>>;
template <class... A> struct Params { static constexpr EmuParam list[sizeof...(A) + 1] = {{(unsigned)sizeof(Plain<A>), std::is_pointer<Plain<A>>::value}..., {}}; };
template <auto F, class... A, size_t... I> static void call(void** p, void (*)(A...), std::index_sequence<I...>) { F(*(Plain<A>*)p[I]...); }
template <auto F, class... A> static EmuKernel entry_of(const char* name, unsigned threads, void (*)(A...)) {
  return {name, [](void** p) { call<F>(p, (void (*)(A...))nullptr, std::index_sequence_for<A...>{}); }, Params<A...>::list, sizeof...(A), threads};
}
template <auto F> static EmuKernel describe(const char* name, unsigned threads) { return entry_of<F>(name, threads, F); }
template <class... A> static constexpr unsigned first(unsigned v, A...) { return v; }  // of __launch_bounds__(threads, blocks)
}  // namespace emu

#define EMU_MODULE(list)                                                                     \
  static const EmuModule emu_table = {list, sizeof list / sizeof *list, emu::run, emu::position}; \
  extern "C" __attribute__((visibility("default"))) const EmuModule* emu_module() { return &emu_table; }

// The sanitizers' reports: gcc calls these with the place in the source.
struct UbsanPlace { const char* file; unsigned line, column; };
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(UbsanPlace* p, uintptr_t address) {
  emu::fail(emu::Misaligned, "%s:%u: misaligned address %#lx", p->file, p->line, (unsigned long)address);
}
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(UbsanPlace* p, uintptr_t index) {
  emu::fail(emu::IllegalAddress, "%s:%u: index %ld is outside of the array", p->file, p->line, (long)index);
}
