// Package kernel holds the CPU kernels: loops over plain slices that know nothing
// of tensors, devices or threads.
//
// The generic Go code here is the reference. It defines what a kernel computes,
// assembly and CUDA versions are tested against it, and it runs where there is no
// assembly. Matrix products ([Gemm], [GemmBF16]) have their own assembly, chosen at
// run time ([CPU]); their results depend on the instruction set. The assembly of
// other kernels computes the same bits as the Go code. The rules for all kernels
// except matrix products:
//
//   - The caller checks shapes. Slices of a wrong length panic or, if their capacity allows it, are read beyond their end.
//   - dst may be exactly one of the inputs of its own type (same start, same length), unless the comment says otherwise. Other
//     overlaps are not allowed.
//   - A kernel starts no goroutine and allocates nothing. The caller divides the work over threads: sub-slices for elementwise
//     kernels, the arguments lo and hi for others. Every output element is computed by the same operations in the same order,
//     wherever the work is cut. So the bits of results do not depend on the number of threads. Only [SumSquares] returns a
//     partial result; its caller must keep the cuts fixed.
//   - Products are rounded before they are added. The code converts each product explicitly, T(a*b) + c, so that the compiler
//     may not fuse the two into one operation. So results are the same on every machine, except for package math, whose
//     functions may differ in the last bit between architectures.
//   - float32 versions of exp, tanh, sigmoid, erf and functions made of them are evaluated in float32 (scalar.go). The error of
//     Exp is at most 1 ulp, and so is that of the exponentials inside softmax, cross-entropy and attention. For Tanh, Sigmoid and
//     SiLU it is at most 2.5 ulp, for GELU 8 + x*x and for GELUTanh 5 + 4|x| + |x*x*x|/4 ulp. The terms with x are for negative x
//     only, where the results go to 0 (1 + tanh would leave no correct digit there). The slopes of SiLU, GELU and GELUTanh have
//     errors of up to 3e-7. Results of Sigmoid below 1e-38, of GELU below 1e-37 and of SiLU below 1e-36 may be 0. float64
//     versions use package math.
//
// Element types are float32, float64, int32, int64 and uint8 ([Number]) and bool.
// [BF16] and [F16] are storage formats: convert them to float32, compute, and round
// back. Only [GemmBF16] multiplies bfloat16 directly, with AVX512-BF16 or, if CPU
// and operating system allow it, with the tiles of AMX. The micro-kernels for tiles
// have run on such a machine, the Go code around them has not: tests run it with an
// emulation of the tiles, and binutils must decode the kernels to the intended
// instructions.
// The kernels for NEON are tested under qemu.
//
// Random numbers depend only on a key and an index ([Bits], [Key]). Dropout uses an
// element's place in the whole tensor ([Rows]). So results do not depend on how the
// tensor is divided over ranks and threads.
package kernel
