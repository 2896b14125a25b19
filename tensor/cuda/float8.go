package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// float8Types are the element types of models that may use 8-bit products.
var float8Types = []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16}

var float8Kernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpRound8:    row("float8.cu", "round8", round8, []tensor.DType{tensor.Float32}),
	ops.OpQuantize8: quantizers(),
	ops.OpScaledMM:  scaledMMs(),
}

// round8 launches k(y, x, n, format).
func round8(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).i64(a.Len[0]).args.I32(a.I[0])
	q.spread(k, a.Len[0])
}

// formats are cuBLASLt's names of the formats.
var formats = [...]blas.Float8{blas.E4M3, blas.E5M2}

// scaledMMs makes OpScaledMM: a product by cuBLASLt. If cuBLASLt cannot do it (before sm_89, and scales per row before sm_90), it is
// computed in float32 from the same codes.
func scaledMMs() (r [tensor.NumDTypes]tensor.Kernel) {
	numbers := newKernel("float8.cu", "numbers8", elems[tensor.Float32])
	for _, t := range float8Types {
		unscale := newKernel("float8.cu", "unscale8", elems[t])
		r[t] = cell(unscale, func(q *Queue, k *kernel, a *tensor.Args) {
			m, n, depth := a.Dim[0], a.Dim[1], a.Dim[2]
			q.gemm = blas.Gemm{Type: blasTypes[t], TransB: true, M: m, N: n, K: depth, Alpha: 1, A: devPtr(a.X[1]), B: devPtr(a.X[2]),
				C: devPtr(a.X[0]), LDA: depth, LDB: depth, LDC: n, Batch: 1, Epilogue: blas.None, A8: formats[a.I[0]], B8: formats[a.I[1]],
				ScaleA: devPtr(a.X[3]), ScaleB: devPtr(a.X[4]), PerRow: a.I[2] != 0, FastAccum: a.I[3] != 0}
			if !q.dev.plain {
				err := q.multiply()
				if err == nil {
					return
				}
				if !blas.IsUnsupported(err) {
					panic(q.dev.fail(q.op.String(), err))
				}
			}
			q.multiply8(numbers, k, a)
		})
	}
	return r
}

// multiply8 computes a product of codes in float32. TensorFloat-32 holds their values exactly.
func (q *Queue) multiply8(numbers, unscale *kernel, a *tensor.Args) {
	m, n, depth := a.Dim[0], a.Dim[1], a.Dim[2]
	x := q.scratch(4 * (m*depth + n*depth + m*n))
	y := x + cuda.Ptr(4*m*depth)
	c := y + cuda.Ptr(4*n*depth)
	q.args.Reset().Ptr(x)
	q.ptr(a, 1).i64(m * depth).args.I32(a.I[0])
	q.spread(numbers, m*depth)
	q.args.Reset().Ptr(y)
	q.ptr(a, 2).i64(n * depth).args.I32(a.I[1])
	q.spread(numbers, n*depth)
	q.gemm = blas.Gemm{Type: blas.Float32, TransB: true, M: m, N: n, K: depth, Alpha: 1, A: x, B: y, C: c, LDA: depth, LDB: depth,
		LDC: n, Batch: 1, Epilogue: blas.None, TF32: true}
	if err := q.multiply(); err != nil {
		panic(q.dev.fail(q.op.String(), err))
	}
	q.args.Reset()
	q.ptr(a, 0).args.Ptr(c)
	q.ptr(a, 3).ptr(a, 4).i64(m * n).i64(n).args.I32(a.I[2])
	q.spread(unscale, m*n)
}
