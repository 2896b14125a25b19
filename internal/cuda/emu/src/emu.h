// What the emulated driver offers besides CUDA's own interface: to the tests
// (Config, leaks, holds) and to other emulated libraries, which find these
// functions by dlsym in the library that RINGO_CUDA_LIB names.
#pragma once
#include <stdint.h>
#define API extern "C" __attribute__((visibility("default")))

struct EmuConfig {
  uint64_t devices = 2;               // how many
  uint64_t memory = 4ull << 30;       // bytes of each
  uint64_t seed = 1;                  // of delays and orders
  uint64_t delay_ns = 0;              // the longest pause before an operation of a stream
  uint64_t lazy = 0;                  // a stream runs only as far as somebody waits for it
  uint64_t reverse = 0;               // threads of a block run from the last to the first
  uint64_t left = 0;                  // allocations begin (not end) at a guard page
  uint64_t fail_alloc = 0;            // this allocation, counted from 1, finds no memory; 0 is none
  uint64_t fail_launch = 0;           // this launch fails; 0 is none
  uint64_t timeout_ns = 60000000000;  // a kernel that runs longer is ended
  uint64_t version = 13000;           // what cuDriverGetVersion answers
  uint64_t no_peers = 0;              // peer access that was enabled is off again
  uint64_t banks = 0;                 // bank conflicts of ldmatrix are errors
  uint64_t apart = 0;                 // there is no path between devices
  uint64_t reaches = 0;               // devices use ordinary host memory themselves
};

// emu_reset sets the configuration, ends holds and blocks, clears errors and counts. It
// waits for all streams first.
API void emu_reset(const EmuConfig*);
// emu_leaks writes what is allocated or open, a line each, and returns how many.
API int emu_leaks(char* out, uint64_t n);
// emu_hold stops a stream before its next operation, until released.
API int emu_hold(void* stream, int held);
// emu_block makes a call on a device block, "cuEventQuery" or "cuEventRecord", until it is
// called again, with "" to block none.
API void emu_block(const char* call, int device);

// emu_enqueue queues an operation on a stream, or adds it to the graph that is
// being captured there. It runs on the stream's thread, may block, and returns
// a CUresult; drop is called once when arg is not needed any more.
API int emu_enqueue(void* stream, const char* name, int (*run)(void* arg), void* arg, void (*drop)(void* arg));
// emu_is_memory says whether n bytes at p are device memory in use.
API int emu_is_memory(uint64_t p, uint64_t n);
