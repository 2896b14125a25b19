package cuda

import (
	"math"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

func eps(q *Queue, a *tensor.Args) { q.wide(a.DType, a.F[0]) }

// gradW makes the kernels of a norm's weight gradient, which is summed up in two passes: operands are the gradient, x, its
// upstream gradient, the means if centered, and the inverse deviations.
func gradW(centered bool) (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		ends := newKernel("norm.cu", "grad_w_ends", elems[t])
		r[t] = cell(newKernel("norm.cu", "grad_w_parts", elems[t]), func(q *Queue, k *kernel, a *tensor.Args) {
			rows, cols := a.Dim[0], a.Dim[1]
			length, parts := cut(rows, colPart, colParts)
			mid := q.scratch(parts * cols * wideSize(t))
			q.args.Reset().Ptr(mid) // scratch may have launched a kernel
			q.ptr(a, 1).ptr(a, 2)
			if centered {
				q.ptr(a, 3).ptr(a, 4)
			} else {
				q.args.Ptr(0)
				q.ptr(a, 3)
			}
			q.i64(rows).i64(cols).i64(length)
			q.run(k, cuda.Dim{X: (cols + colThreads - 1) / colThreads, Y: parts}, cuda.Dim{X: colThreads, Y: rowThreads}, 0)
			q.args.Reset()
			q.ptr(a, 0).args.Ptr(mid)
			q.i64(parts).i64(cols).args.I32(int(min(math.Abs(a.F[0]), 1)))
			q.spread(ends, cols)
		})
	}
	return r
}

var normKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpLayerNorm:      floats("norm.cu", "layer_norm", byRow(6, eps)),
	tensor.OpLayerNormGradX: floats("norm.cu", "layer_norm_grad_x", byRow(6, nil)),
	tensor.OpLayerNormGradW: gradW(true),
	tensor.OpRMSNorm:        floats("norm.cu", "rms_norm", byRow(4, eps)),
	tensor.OpRMSNormGradX:   floats("norm.cu", "rms_norm_grad_x", byRow(5, nil)),
	tensor.OpRMSNormGradW:   gradW(false),
}
