// What kernels do by inline PTX for sm_90a (hopper.cpp): barriers that count bytes, barriers of some threads, the copy engine,
// and products of four warps. Shared memory has 32-bit addresses. Lines are those of the caller.
#pragma once
#include "fiber.h"

#pragma GCC visibility push(hidden)
// EmuMap is what cuTensorMapEncodeTiled writes of its arguments (memory.cpp).
struct EmuMap { uint64_t address, type, rank, dims[4], strides[3], box[4], swizzle, l2; };

unsigned emu_shared_address(const void*);
// emu_shared is the memory at an address of shared memory.
void* emu_shared(unsigned at, unsigned bytes, const char* what, int line);

// mbarrier: init for n arrivals a phase, its fence, arrive (and expect that many bytes), and wait for the phase of a parity.
void emu_mbarrier_init(unsigned b, unsigned n, int line);
void emu_mbarriers_ready();
void emu_mbarrier_arrive(unsigned b, unsigned bytes, int line);
void emu_mbarrier_wait(unsigned b, unsigned parity, int line);
// emu_bar is bar.sync, or bar.arrive, of some threads of the block.
void emu_bar(unsigned number, unsigned threads, bool sync, int line);

// emu_registers is setmaxnreg to n registers of a thread, more or fewer: more wait until others gave them back.
void emu_registers(unsigned n, bool more, int line);

// Copies to shared memory come as late as they may, and what is there before is NaN from the beginning on.
void emu_copy_box(unsigned to, const void* map, int x, int y, int z, int w, unsigned rank, unsigned bar, int line);
void emu_copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned bar, int line);

// A thread's stores to shared memory. The copy engine and wgmma may not have to do with these bytes before emu_see_stores.
void emu_store16(unsigned at, const unsigned* v, int line);
void emu_store_matrices(unsigned row, const unsigned* r, int line);
void emu_see_stores();

// wgmma: d = a b, or d += a b if add, of 64 rows and n columns. It is computed when a warp waits for it: then it reads a and b in
// shared memory, by their descriptors, and writes d. a may be four registers. Of `across`, bit 0: rows of a, bit 1: columns of b
// are neighbours in memory.
void emu_wgmma(float* d, unsigned n, const unsigned* a, uint64_t at_a, uint64_t at_b, int across, bool add, bool f16, int line);
void emu_wgmma_fence();
void emu_wgmma_commit();
void emu_wgmma_wait(unsigned but, int line);
#pragma GCC visibility pop
