// Package emu is a CUDA machine for tests: a driver and an NVRTC written in C++
// (src), which g++ compiles when a test first needs them. Package cuda finds them
// by RINGO_CUDA_LIB and RINGO_NVRTC_LIB and sees no difference. Kernels are the
// same text that NVRTC gets, compiled by g++.
//
//	d := emu.Start(t, emu.Config{Lazy: true, Reverse: true})
//	dev, err := d.Open(0)
//
// It is made to find mistakes, not to be fast:
//
//   - Streams are threads. They pause at random (Delay), run only as far as somebody
//     waits for them (Lazy), or stop (Hold): so a missing wait for an event is found.
//     Graphs run their nodes in another order at every launch.
//
//   - The threads of a block run one after the other up to the next barrier, in either
//     order (Reverse). The order of blocks depends on Seed. Shared memory is NaN when a
//     block begins: so a missing __syncthreads is found. A barrier or warp operation
//     that not all threads reach is an error with its line.
//
//   - Every allocation has guard pages before and after it, and touches one of them
//     (Left). It is filled with NaN, has canaries if it does not fill its pages, and its
//     addresses are never used again. An access outside of it, or after it was freed, is
//     a CUDA_ERROR_ILLEGAL_ADDRESS with kernel, thread and distance. A pool rounds and
//     caches; RINGO_CUDA_DEBUG=1 stops that.
//
//   - Misaligned vector accesses, indices outside of shared arrays, traps, asserts and
//     endless kernels are the errors that CUDA would give, with the place. Too few or too
//     many parameters, and those that are host pointers or memory of other devices, are
//     errors here only: a driver takes what it finds.
//
//   - Tests can make it run out of memory, fail launches, or hang in a call (Block),
//     and find what was not closed (Leaks).
//
//   - Matrix products on tensor cores and asynchronous copies are functions with the
//     layouts of the PTX ISA (src/mma.cpp). Tests compare these with package fragment,
//     element by element. The bytes of a copy arrive when they are waited for. Bank
//     conflicts of ldmatrix are errors if asked for (Banks).
//
//   - So is what kernels for compute capability 9.0 use (src/hopper.cpp): barriers that
//     count bytes, barriers of some threads, boxes of tensor maps, wgmma. A copy comes
//     when all threads wait, and its place is NaN from the beginning on; wgmma reads and
//     writes when it is waited for. A fence that is missing is an error, and so is a wait
//     that nobody ends, for registers (setmaxnreg) too. There are no clusters and no
//     swizzles but that of 128 bytes.
//
//   - NCCL (src/nccl_*.cpp): calls that do not match hang, the first calls wait for the
//     other ranks on the host, freeing a communicator that a call still uses ends the
//     process, the text of the last error is one for all threads, and the order of additions depends on the
//     place. Ranks are threads of a process, or processes of one machine. Each process
//     has its own emulator, in which rank r uses device r. Bytes between processes go
//     through the process that made the id. If a rank dies, the operations of the others
//     hang. NCCL's own protocol between processes, its topology and its network are not
//     emulated, and neither is CUDA_VISIBLE_DEVICES.
//
// It does not find Go code that accesses device memory. tensortest.Remote does: a
// device whose addresses cannot be accessed.
//
// It tests logic only. There is no inline PTX (a kernel has an #ifdef RINGO_EMU for
// that, and its PTX does not run here), no grid-wide synchronization inside a kernel, no
// __device__ variables that kernels write (they do not compile), no default stream, and no
// information about speed. Kernels of different streams do run at the same time.
//
// Other emulated libraries (NCCL, cuBLASLt) put their work into streams with
// emu_enqueue, see src/emu.h.
package emu
