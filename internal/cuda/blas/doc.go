// Package blas multiplies matrices on the GPU with cuBLASLt, which it opens at run
// time.
//
//	lib, err := blas.Load()
//	h, err := lib.New(dev, pool)
//	err = h.MatMul(stream, &blas.Gemm{Type: blas.BFloat16, TransB: true,
//		M: rows, N: out, K: in, Alpha: 1, A: x, LDA: in, B: w, LDB: in, C: y, LDC: out,
//		Batch: 1, Epilogue: blas.Bias, Bias: b})
//
// Matrices are row-major. cuBLASLt's are column-major, so its C is the transpose of
// ours: it is asked for Cᵀ = op(B)ᵀ·op(A)ᵀ. "Rows" and "columns" are ours here.
//
// For the first product of a shape, cuBLASLt's heuristic chooses an algorithm. The
// answer is kept, with the descriptors, so later products are one call that
// allocates nothing. Each stream has its own workspace: products on different
// streams do not share it, and the same products give the same bits.
//
// With RINGO_CUDA_TUNE=1 the first product of a shape times the eight algorithms
// that the heuristic thinks best, and takes the fastest one. The choice is kept
// in a file of the cache folder, named by device, version of cuBLASLt and shape.
// Processes use only what is in such a file, so those that share a folder
// compute the same bits; hosts with folders of their own may not.
//
// Sums are float32 for Float32, BFloat16 and Float16, and float64 for Float64. If a
// sum is computed in parts (split k), they are added in that type, too, never in 16
// bits. Float32 products use TensorFloat-32 only if asked to.
package blas
