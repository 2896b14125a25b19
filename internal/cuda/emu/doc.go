// Package emu is a CUDA machine for tests: a driver and an NVRTC written in C++
// (src), which g++ compiles when a test first needs them. Package cuda finds
// them by RINGO_CUDA_LIB and RINGO_NVRTC_LIB and knows no difference. Kernels
// are the same text that NVRTC gets, compiled by g++.
//
//	d := emu.Start(t, emu.Config{Lazy: true, Reverse: true})
//	dev, err := d.Open(0)
//
// It is made to find mistakes, not to be fast:
//
//   - Streams are threads. They pause at random (Delay), run only as far as
//     somebody waits for them (Lazy), or stop (Hold): a missing event wait shows.
//     Graphs run their nodes in another order at every launch.
//
//   - The threads of a block run one after the other up to the next barrier, in
//     either order (Reverse), blocks in an order given by Seed, and shared memory
//     is NaN before a block: a missing __syncthreads shows. Barriers and warp
//     operations that not all threads reach are errors with their lines.
//
//   - Every allocation has guard pages before and behind it, on either side
//     without a gap (Left), canaries where it does not fill its pages, NaN in it,
//     and its addresses are never used again: accesses outside of it and after
//     its end are CUDA_ERROR_ILLEGAL_ADDRESS with kernel, thread and distance.
//     A pool rounds and caches; RINGO_CUDA_DEBUG=1 stops that.
//
//   - Misaligned vector accesses, indices outside of shared arrays, traps,
//     asserts, endless kernels, host pointers and other devices' memory as
//     parameters are the errors that CUDA would give, with the place.
//
//   - Memory that runs out, failing launches and what was not closed (Leaks).
//
//   - Matrix products of tensor cores and asynchronous copies are functions with
//     the layouts of the PTX ISA (src/mma.cpp), which tests compare with package
//     fragment, element by element. A copy's bytes come when they are waited for.
//     Bank conflicts of ldmatrix are errors if asked for (Banks).
//
//   - NCCL (src/nccl_*.cpp): calls that do not match hang, the first calls wait for
//     the other ranks on the host (for those that are threads), to free a
//     communicator that a call still uses ends the process, and the order of
//     additions depends on the place. Ranks are threads of a process or processes of
//     one machine, each with an emulator of its own, of which rank r takes device r.
//     Their bytes go through the process that made the id; a rank that dies leaves
//     the operations of others hanging. NCCL's own way between processes, its
//     topology and its network are not emulated, nor is CUDA_VISIBLE_DEVICES.
//
// Go code that touches device memory is not found here: tensortest.Remote is a
// device whose addresses lead nowhere.
//
// It proves logic only: no inline PTX (a kernel has an #ifdef RINGO_EMU for that,
// and its PTX has not run), no grid-wide synchronization inside a kernel, no
// __device__ variables that kernels write, no default stream, and nothing about
// speed. Kernels of different streams do run at the same time.
//
// Other emulated libraries (NCCL, cuBLASLt) put their work into streams with
// emu_enqueue, see src/emu.h.
package emu
