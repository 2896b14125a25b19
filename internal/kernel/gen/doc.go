// Command gen writes the assembly of package kernel: for each instruction set one
// .s file and one file of Go declarations, in the parent directory.
//
//	cd internal/kernel/gen && go run .
//
// It is a module of its own, so that its dependencies (avo, an assembly generator,
// and in tests x/arch, a decoder) do not become dependencies of the framework. Its
// output is committed; run it only after a change here.
//
// avo writes amd64 only. For NEON ([neon]), the bodies of vector kernels are
// recorded, get their registers here, and are written as text. Instructions that
// Go's assembler does not have are written as numbers ([neonWords]).
//
// For every instruction set and element type it makes
//
//   - the GEMM micro-kernels, one for each panel height: they keep the whole tile of C in
//     registers and add k rank-1 updates to it;
//   - the packing helpers: copying and transposing panels of A and B;
//   - the vector kernels ([vectorKernels]), and the Go functions that choose between them.
//     They compute the bits of the Go code of package kernel, so they do the same
//     operations in the same order and never fuse two.
//
// In a parameter of a vector kernel, T is the element type. A parameter may not be
// called g: the assembler reads that as the goroutine.
package main
