// Package kernel holds the CPU kernels: loops over plain slices that know nothing of tensors, devices or threads.
//
// The generic Go code here is the reference. It defines what a kernel computes; assembly and CUDA versions are tested
// against it, and it runs wherever there is none of them. Matrix products ([Gemm], [GemmBF16]) have assembly of their own, chosen at
// run time ([CPU]), and results that depend on the instruction set. The assembly of other kernels computes the same bits as
// the Go code. The rules for all but matrix products:
//
//   - The caller checks shapes. Slices of a wrong length panic or, where the capacity allows it, read on.
//   - dst may be exactly one of the inputs of its own type (same start, same length) unless the comment says otherwise;
//     it may not overlap one in any other way.
//   - A kernel starts no goroutine and allocates nothing. Work is cut over threads by the caller: elementwise kernels on
//     sub-slices, the others by their lo and hi arguments. Every output element is computed by the same operations in
//     the same order wherever the cuts are, so results do not depend on the number of threads, to the bit.
//     [SumSquares] alone returns a partial result, whose cuts the caller must keep fixed.
//   - Products are rounded before they are added: the code converts each product explicitly, T(a*b) + c, which forbids
//     the compiler to fuse the two into one operation on machines that could. So apart from package math, whose
//     functions may differ in the last bit between architectures, results are the same on every machine.
//   - float32 versions of exp, tanh, sigmoid, erf and what is built on them are evaluated in float32 (scalar.go). Exp errs by at
//     most 1 ulp, as the exponentials inside softmax, cross-entropy and attention do; Tanh, Sigmoid and SiLU by at most 2.5 ulp;
//     GELU by 8 + x*x and GELUTanh by 5 + 4|x| + |x*x*x|/4 ulp, the terms with x for negative x alone, whose results vanish
//     (1 + tanh there would leave no correct digit); the slopes of SiLU, GELU and GELUTanh by 3e-7. Results of Sigmoid below
//     1e-38, of GELU below 1e-37 and of SiLU below 1e-36 may be 0. float64 versions use package math.
//
// Element types are float32, float64, int32, int64 and uint8 ([Number]) and bool. [BF16] and [F16] are storage formats:
// convert them to float32, compute, and round back; only [GemmBF16] multiplies bfloat16 as such, with AVX512-BF16 or, where
// CPU and operating system grant them, the tiles of AMX. On a machine without AMX the tests check its kernels by their machine
// code (binutils must read in it what was meant) and by an emulation of their packing and sums; there they have not run. The kernels for
// NEON are tested under qemu.
//
// Random numbers are a pure function of a key and an index ([Bits], [Key]), and dropout is keyed by an element's place in
// the whole tensor ([Rows]), so a result does not depend on how the tensor is cut over ranks and threads.
package kernel
