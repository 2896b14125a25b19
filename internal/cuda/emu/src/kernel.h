// The border between the emulated driver and a compiled module (shim.h).
#pragma once
#include <stdint.h>

constexpr unsigned long StackBytes = 64 << 10, StackGuard = 4096;  // of a fiber; the guard page before it

struct EmuParam { unsigned size; bool pointer; };
struct EmuKernel {
  const char* name;
  void (*body)(void** args);
  const EmuParam* params;
  unsigned count, max_threads;  // max_threads: of __launch_bounds__
};
struct EmuLaunch {
  unsigned grid[3], block[3], shared;
  unsigned char* dynamic;  // the shared bytes
  unsigned char** stacks;  // of 1024 fibers, made when needed: the stream's, for all its kernels
  uint64_t seed;           // of the order of blocks
  bool reverse;            // of the order of threads
  bool banks;              // conflicts of ldmatrix are errors
  void** args;
  char detail[512];        // out: what went wrong
};
struct EmuModule {
  const EmuKernel* kernels;
  unsigned count;
  int (*run)(const EmuKernel*, EmuLaunch*);               // a CUresult
  void (*position)(unsigned thread[3], unsigned block[3]);  // of the thread that runs
};
