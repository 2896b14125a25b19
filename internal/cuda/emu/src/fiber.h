// What a compiled kernel finds of the threads of its block, their barriers and
// warps (fiber.cpp). Every module has this state of its own, and streams that run
// at the same time have copies of the module.
#pragma once
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include <utility>
#include "kernel.h"

#pragma GCC visibility push(hidden)
struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

namespace emu {
enum : int { IllegalAddress = 700, Misaligned = 716, LaunchFailed = 719 };
enum Kind : uint8_t { Shuffle, Ballot, Joint };
struct Fiber {
  void* sp;
  unsigned tid;  // the thread's number in its block
  uint3 idx;
  const void* on;  // the barrier that it waits for, of some threads (wait_on), and where
  int line;
};
extern Fiber* cur;

// fail ends the launch.
[[noreturn]] void fail(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));
// barrier is __syncthreads, barrier_vote those that count who votes for something
// (kind 0: anybody, 1: everybody, 2: how many). The line tells barriers apart.
void barrier(int line);
int barrier_vote(int line, bool p, int kind);
// exchange gives this lane the value of another lane of mask, or who votes.
uint64_t exchange(uint32_t mask, uint64_t value, unsigned source, Kind, int line);
// together lets a warp do something at once: the last lane to come calls fn with
// what each lane brought.
void together(void* mine, void (*fn)(void* const* lanes), int line);
// wait_on stops this thread until another one calls wake_on for the same barrier.
void wait_on(const void* barrier, int line);
void wake_on(const void* barrier);
unsigned char* dynamic_shared();
bool is_shared(const void*, unsigned bytes);  // of this block

int run(const EmuKernel*, EmuLaunch*);
void position(unsigned thread[3], unsigned block[3]);

template <class T> static T shuffle(uint32_t mask, T v, unsigned source, int line) {
  static_assert(sizeof(T) <= 8, "");
  uint64_t b = 0;
  memcpy(&b, &v, sizeof v);
  b = exchange(mask, b, source & 31, Shuffle, line);
  memcpy(&v, &b, sizeof v);
  return v;
}

// describe makes the table entry of a kernel; its parameters come from its type.
template <class T> using Plain = std::remove_cv_t<std::remove_reference_t<T>>;
template <class... A> struct Params { static constexpr EmuParam list[sizeof...(A) + 1] = {{(unsigned)sizeof(Plain<A>), std::is_pointer<Plain<A>>::value}..., {}}; };
template <auto F, class... A, size_t... I> static void call(void** p, void (*)(A...), std::index_sequence<I...>) { F(*(Plain<A>*)p[I]...); }
template <auto F, class... A> static constexpr EmuKernel entry_of(const char* name, unsigned threads, void (*)(A...)) {
  return {name, [](void** p) { call<F>(p, (void (*)(A...))nullptr, std::index_sequence_for<A...>{}); }, Params<A...>::list, sizeof...(A), threads};
}
template <auto F> static constexpr EmuKernel describe(const char* name, unsigned threads) { return entry_of<F>(name, threads, F); }
template <class... A> static constexpr unsigned first(unsigned v, A...) { return v; }  // of __launch_bounds__(threads, blocks)
}  // namespace emu
#pragma GCC visibility pop

#define EMU_MODULE(list)                                                                     \
  static const EmuModule emu_table = {list, sizeof list / sizeof *list, emu::run, emu::position}; \
  extern "C" __attribute__((visibility("default"))) const EmuModule* emu_module() { return &emu_table; }
