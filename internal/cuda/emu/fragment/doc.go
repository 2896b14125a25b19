// Package fragment says where the elements of small matrices are in the registers
// of a warp: the layouts of mma.sync.m16n8k16 with 16-bit floats and of
// ldmatrix.x4, from the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating
// point type", "Warp-level matrix load instruction: ldmatrix").
//
// It is a model for tests. Kernels and emulator do not use it, so that tests can
// compare each of them with it, element by element.
package fragment
