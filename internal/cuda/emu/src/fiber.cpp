// How a block runs: its threads are fibers of one OS thread. A thread runs until
// it waits at a barrier or for its warp, or ends; a warp runs until all of it
// waits at a barrier, then the next one does. So warps are as far apart as their
// barriers allow, and a missing barrier shows. This is compiled once and part of
// every module.
#include "mma.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {
// Warp has a fiber for each thread that had to wait, and holds what its waiting
// lanes brought: each says for whom it waits and which lane's value it wants.
// The fibers are ready, at the barrier, waiting for their warp or for a barrier of some threads, or idle.
struct Warp {
  unsigned threads, started, nfibers;
  uint32_t ready, at_barrier, in_warp, apart;  // of fibers
  bool alike;                           // all that wait want the same, in the same line
  uint32_t alive, waiting;              // of lanes, as are the following
  uint32_t want[32], source[32];
  uint64_t in[32], out[32];
  int line[32];
  Kind kind[32];
  uint8_t fiber[32];
};

static Fiber fibers[32][32];
static Warp warps[32];
static void* scheduler;
Fiber* cur;
static Warp* warp;  // the one that runs
static unsigned nthreads, nwarps, alive, arrived;
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

static unsigned number_of(const Fiber* f) { return (unsigned)(f - fibers[0]) % 32; }

// yield goes on with another fiber of the warp that is ready, the first one, or
// with the scheduler.
static void yield() {
  Fiber* f = cur;
  f->idx = threadIdx;
  void* to = scheduler;
  if (warp->ready) {
    unsigned next = __builtin_ctz(warp->ready);
    warp->ready &= warp->ready - 1;
    cur = &fibers[warp - warps][next];
    to = cur->sp;
  }
  emu_switch(&f->sp, to);
  threadIdx = f->idx;
}

// The fibers are left as they are.
void fail(int code, const char* format, ...) {
  char text[300];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  snprintf(launch->detail, sizeof launch->detail, "%s in thread (%u,%u,%u) of block (%u,%u,%u)", text, threadIdx.x, threadIdx.y,
           threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z);
  failed = code;
  void* dead;
  emu_switch(&dead, scheduler);
  abort();
}

static void release_barrier() {
  arrived = 0;
  for (unsigned w = 0; w < nwarps; w++) {
    warps[w].ready |= warps[w].at_barrier;
    warps[w].at_barrier = 0;
  }
}
void barrier(int line) {
  if (arrived && line != barrier_line) fail(LaunchFailed, "threads of a block wait at different __syncthreads, in lines %d and %d,", barrier_line, line);
  barrier_line = line;
  if (++arrived == alive) return release_barrier();
  warp->at_barrier |= 1u << number_of(cur);
  yield();
}
int barrier_vote(int line, bool p, int kind) {
  static int votes, total;  // of the barrier under way
  if (!arrived) votes = 0, total = (int)alive;
  votes += p;
  barrier(line);
  int n = votes, of = total;
  barrier(-line);  // everybody has read before the next vote
  return kind == 0 ? n > 0 : kind == 1 ? n == of : n;
}

// wake makes the lanes of mask ready but for that of the running fiber, if it is
// one of them.
static void wake(Warp& w, uint32_t mask) {
  uint32_t bits = 0;
  for (uint32_t m = mask; m; m &= m - 1) bits |= 1u << w.fiber[__builtin_ctz(m)];
  w.ready |= w.in_warp & bits;
  w.in_warp &= ~bits;
  w.waiting &= ~mask;
}
// wait_for_warp notes that this lane waits with a value.
static unsigned wait_for_warp(Warp& w, uint32_t mask, uint64_t value, Kind kind, int line) {
  unsigned lane = cur->tid & 31, first = __builtin_ctz(w.waiting | 1u << 31);
  w.alike = !w.waiting || (w.alike && w.want[first] == mask && w.line[first] == line);
  w.in[lane] = value;
  w.want[lane] = mask;
  w.line[lane] = line;
  w.kind[lane] = kind;
  w.fiber[lane] = (uint8_t)number_of(cur);
  w.waiting |= 1u << lane;
  return lane;
}
static void yield_in_warp() {
  warp->in_warp |= 1u << number_of(cur);
  yield();
}

// complete serves the lanes of mask when all of them that are alive wait.
static bool complete(Warp& w, uint32_t mask) {
  mask &= w.alive;
  if ((w.waiting & mask) != mask) return false;
  if (w.kind[__builtin_ctz(mask)] == Joint) return false;  // see together
  uint32_t votes = 0;
  bool counted = false;
  auto count = [&] {
    for (uint32_t m = counted ? 0 : mask; m; m &= m - 1) votes |= w.in[__builtin_ctz(m)] ? m & -m : 0;
    counted = true;
    return votes;
  };
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = __builtin_ctz(m);
    bool there = mask >> w.source[i] & 1;
    w.out[i] = w.kind[i] == Ballot ? count() : there ? w.in[w.source[i]] : ~0ull;  // NaN: no such lane
  }
  wake(w, mask);
  return true;
}
uint64_t exchange(uint32_t mask, uint64_t value, unsigned source, Kind kind, int line) {
  Warp& w = *warp;
  if (!(mask >> (cur->tid & 31) & 1)) fail(LaunchFailed, "line %d: a lane waits for its warp with mask %#x, which leaves it out,", line, mask);
  unsigned lane = wait_for_warp(w, mask, value, kind, line);
  w.source[lane] = source;
  for (uint32_t m = w.alike ? 0 : mask & w.waiting; m; m &= m - 1) {
    unsigned i = __builtin_ctz(m);
    if (w.want[i] != mask || w.line[i] != line)
      fail(LaunchFailed, "lanes of a warp meet with masks %#x (line %d) and %#x (line %d)", w.want[i], w.line[i], mask, line);
  }
  if (!complete(w, mask)) yield_in_warp();
  return w.out[lane];
}
void together(void* mine, void (*fn)(void* const* lanes), int line) {
  Warp& w = *warp;
  if (w.alive != ~0u) fail(LaunchFailed, "line %d: an instruction of the whole warp, and not all of its 32 threads are there,", line);
  wait_for_warp(w, ~0u, (uint64_t)(uintptr_t)mine, Joint, line);
  if (w.waiting != ~0u) return yield_in_warp();
  for (unsigned i = 0; i < 32; i++)
    if (w.kind[i] != Joint || w.line[i] != line) fail(LaunchFailed, "lanes of a warp meet in lines %d and %d,", w.line[i], line);
  fn((void* const*)w.in);
  wake(w, ~0u);
}

void wait_on(const void* barrier, int line) {
  cur->on = barrier, cur->line = line;
  warp->apart |= 1u << number_of(cur);
  yield();
}
void wake_on(const void* barrier) {
  for (unsigned w = 0; w < nwarps; w++)
    for (uint32_t m = warps[w].apart; m; m &= m - 1)
      if (unsigned f = __builtin_ctz(m); fibers[w][f].on == barrier) warps[w].apart &= ~(1u << f), warps[w].ready |= 1u << f;
}

// left is called when a thread has ended: it holds nobody up any more.
static void left(unsigned tid) {
  alive--;
  if (arrived && arrived == alive) release_barrier();
  warp->alive &= ~(1u << (tid & 31));
}
// entry is the first function of a fiber: it runs threads of its warp until one
// waits; the rest go to new fibers.
static void entry() {
  for (;;) {
    while (warp->started < warp->threads) {
      unsigned k = warp->started++;
      unsigned t = (unsigned)(warp - warps) * 32 + (launch->reverse ? warp->threads - 1 - k : k);
      cur->tid = t;
      if (nthreads == blockDim.x) threadIdx = {t, 0, 0};
      else threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
      kernel->body(launch->args);
      left(t);
    }
    yield();
  }
}
static void start(Fiber* f) {
  unsigned n = (unsigned)(f - fibers[0]);
  unsigned char*& stack = launch->stacks[n];
  if (!stack) {
    auto p = (unsigned char*)mmap(0, StackBytes + StackGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {  // no fiber runs that could fail
      perror("emu: the stack of a thread");
      abort();
    }
    mprotect(p, StackGuard, PROT_NONE);
    stack = p + StackGuard;
  }
  // Stacks that all began at the same place of a page would share few lines of the cache.
  void** sp = (void**)(stack + StackBytes - 64 - n % 16 * 256);
  *--sp = 0;
  *--sp = (void*)entry;
  for (int i = 0; i < 6; i++) *--sp = 0;
  f->sp = sp;
}
static void resume(Fiber* f) {
  cur = f;
  emu_switch(&scheduler, f->sp);
}
// broken is fail where no thread runs.
static void __attribute__((format(printf, 1, 2))) broken(const char* format, ...) {
  va_list a;
  va_start(a, format);
  int n = vsnprintf(launch->detail, sizeof launch->detail, format, a);
  va_end(a);
  if (n >= 0 && n < (int)sizeof launch->detail)
    snprintf(launch->detail + n, sizeof launch->detail - n, ", in block (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z);
  failed = LaunchFailed;
}
static void stuck() {
  if (arrived) return broken("%u of %u threads wait at __syncthreads (line %d) and the others never come", arrived, alive, barrier_line);
  for (unsigned w = 0; w < nwarps; w++)
    if (warps[w].apart) return broken("%u threads are left, and thread %u waits in line %d for what never comes", alive,
                                      fibers[w][__builtin_ctz(warps[w].apart)].tid, fibers[w][__builtin_ctz(warps[w].apart)].line);
  broken("%u threads wait for others of their warps, which never come", alive);
}

// hopper.cpp: land ends a copy to shared memory, if one is under way. The others are called at a block's ends.
static bool land();
static void at_begin();
static void at_end();

// advance lets threads of a warp run; false: all of them wait or have ended.
static bool advance(unsigned at) {
  Warp& w = warps[at];
  warp = &w;
  if (w.ready) {
    unsigned i = __builtin_ctz(w.ready);
    w.ready &= w.ready - 1;
    return resume(&fibers[at][i]), true;
  }
  if (w.started < w.threads) {
    Fiber* f = &fibers[at][w.nfibers++];
    start(f);
    return resume(f), true;
  }
  // A lane may have ended that others of its warp wait for.
  for (uint32_t m = w.waiting; m; m &= m - 1)
    if (complete(w, w.want[__builtin_ctz(m)])) return true;
  return false;
}
static void run_block() {
  blocks_run++;
  at_begin();
  arrived = 0;
  alive = nthreads;
  nwarps = (nthreads + 31) / 32;
  for (unsigned i = 0; i < nwarps; i++) {
    Warp& w = warps[i];
    unsigned n = nthreads - i * 32;
    w.threads = n >= 32 ? 32 : n;
    w.alive = n >= 32 ? ~0u : (1u << n) - 1;
    w.started = w.nfibers = w.ready = w.at_barrier = w.in_warp = w.apart = w.waiting = 0;
  }
  while (alive && !failed) {
    bool any = false;
    for (unsigned i = 0; i < nwarps && !failed; i++)
      while (!failed && advance(launch->reverse ? nwarps - 1 - i : i)) any = true;
    if (!any && !land()) return stuck();
  }
  if (!failed) at_end();
}

extern "C" __attribute__((visibility("hidden"))) unsigned char __start_emu_shared[], __stop_emu_shared[];  // kernel.ld

unsigned char* dynamic_shared() { return launch->dynamic; }
bool is_shared(const void* at, unsigned bytes) {
  auto p = (const unsigned char*)at;
  return (p >= launch->dynamic && p + bytes <= launch->dynamic + launch->shared) ||
         (p >= __start_emu_shared && p + bytes <= __stop_emu_shared);
}

// run runs all blocks, in an order that depends on the seed.
int run(const EmuKernel* k, EmuLaunch* l) {
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
    memset(__start_emu_shared, 0xff, __stop_emu_shared - __start_emu_shared);
    memset(l->dynamic, 0xff, l->shared);
    run_block();
  }
  return failed;
}
void position(unsigned t[3], unsigned b[3]) {
  t[0] = threadIdx.x, t[1] = threadIdx.y, t[2] = threadIdx.z;
  b[0] = blockIdx.x, b[1] = blockIdx.y, b[2] = blockIdx.z;
}
}  // namespace emu

// The sanitizers' reports: gcc calls these with the place in the source.
struct UbsanPlace { const char* file; unsigned line, column; };
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(UbsanPlace* p, uintptr_t address) {
  emu::fail(emu::Misaligned, "%s:%u: misaligned address %#lx", p->file, p->line, (unsigned long)address);
}
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(UbsanPlace* p, uintptr_t index) {
  emu::fail(emu::IllegalAddress, "%s:%u: index %ld is outside of the array", p->file, p->line, (long)index);
}
