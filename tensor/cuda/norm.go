package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func eps(q *Queue, a *tensor.Args) { q.wide(a.DType, a.F[0]) }

// gradW makes the kernels of a norm's weight gradient, which is summed in two passes. Operands: the gradient, x, the upstream gradient, the
// means if centered, and the inverse deviations.
func gradW(centered bool) (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		ends := newKernel("norm.cu", "grad_w_ends", elems[t])
		r[t] = cell(newKernel("norm.cu", "grad_w_parts", elems[t]), func(q *Queue, k *kernel, a *tensor.Args) {
			rows, cols := a.Dim[0], a.Dim[1]
			length, parts := cut(rows, colPart, colParts)
			mid := q.scratch(parts * cols * wideSize(t))
			q.args.Reset().Ptr(mid) // scratch may have used q.args for a launch
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
			q.i64(parts).i64(cols).args.I32(truthOf(a.F[0]))
			q.spread(ends, cols)
		})
	}
	return r
}

// How gradients of norms are cut: parts of a block that has a row for each warp, or a row at a time.
const (
	normWarps     = 8   // WARPS of norm.cu
	warpNormPart  = 32  // least number of rows of a part of warp_norm_grad
	warpNormParts = 264 // largest number of parts: as many blocks of 256 threads as an H100 runs at a time
	normPart      = 16  // the same of norm_grad
	normParts     = 768
	normThreads   = 512 // largest number of threads of a block: MAX_WARPS of norm.cu
	normEnds      = 32  // ENDS of norm.cu
)

func truthOf(v float64) int { return int(truth(v != 0)) }

// normGrads makes the kernels of OpLayerNormGrad and OpRMSNormGrad. Operands: the gradients of x, of w and, if centered, of b, which may be
// missing; then x, the upstream gradient, w, the means if centered, and the inverse deviations. F says to which gradients the results are
// added.
func normGrads(centered bool) (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range floatTypes {
		residents := residentGrads(t)
		ends, warps := newKernel("norm.cu", "norm_grad_ends", elems[t]), newKernel("norm.cu", "warp_norm_grad", elems[t])
		r[t] = cell(newKernel("norm.cu", "norm_grad", elems[t]), func(q *Queue, k *kernel, a *tensor.Args) {
			cols := a.Dim[1]
			vec, lanes := wholeRows(a, cols*t.Size(), 0, a.Outs, a.Outs+1, a.Outs+2), cols*t.Size()/16
			add := truthOf(a.F[0])
			switch {
			case vec && t != tensor.Float64 && lanes <= residentGradPacks:
				k, parts := residents[fewestPacks(lanes)], min(max(a.Dim[0]/warpNormPart, 1), warpNormParts)
				mid := q.normParts(a, centered, parts)
				q.args.I32(cols).I32(add)
				q.run(k, cuda.Dim{X: parts}, cuda.Dim{X: 32, Y: normWarps}, k.shared)
				q.normEnds(ends, a, centered, mid, parts)
			case cols <= warpRow:
				length, parts := cut(a.Dim[0], warpNormPart, warpNormParts)
				mid := q.normParts(a, centered, parts)
				q.i64(cols).i64(length).args.I32(add).I32(int(truth(vec)))
				q.run(warps, cuda.Dim{X: parts}, cuda.Dim{X: 32, Y: normWarps}, 0)
				q.normEnds(ends, a, centered, mid, parts)
			case vec && lanes <= normThreads:
				length, parts := cut(a.Dim[0], normPart, normParts)
				mid := q.normParts(a, centered, parts)
				q.i64(cols).i64(length).args.I32(add)
				q.run(k, cuda.Dim{X: parts}, cuda.Dim{X: (lanes + 31) &^ 31}, 0)
				q.normEnds(ends, a, centered, mid, parts)
			default:
				q.wideNormGrad(a, centered)
			}
		})
	}
	return r
}

// normParts sets the parameters of norm_grad up to the number of rows, and returns the memory of the parts of the gradients of w and b.
func (q *Queue) normParts(a *tensor.Args, centered bool, parts int) cuda.Ptr {
	x, mid := a.Outs, q.scratch(2*parts*a.Dim[1]*wideSize(a.DType))
	q.args.Reset() // scratch may have used q.args for a launch
	q.ptr(a, 0).args.Ptr(mid)
	q.ptr(a, x).ptr(a, x+1).ptr(a, x+2)
	if !centered {
		q.args.Ptr(0)
	}
	for i := x + 3; i < a.N; i++ {
		q.ptr(a, i)
	}
	q.i64(a.Dim[0])
	return mid
}

// normEnds adds up the parts.
func (q *Queue) normEnds(k *kernel, a *tensor.Args, centered bool, mid cuda.Ptr, parts int) {
	cols, vectors := a.Dim[1], 1
	q.args.Reset()
	if q.ptr(a, 1); centered {
		q.ptr(a, 2)
		vectors = 2
	} else {
		q.args.Ptr(0)
	}
	q.args.Ptr(mid)
	q.i64(parts).i64(cols).args.I32(truthOf(a.F[1])).I32(truthOf(a.F[2]))
	q.run(k, cuda.Dim{X: (cols + colThreads - 1) / colThreads, Y: vectors}, cuda.Dim{X: colThreads, Y: normEnds}, 0)
}

// wholeRows reports whether rows of so many bytes can be read in units of 16 bytes: the operands are aligned, and so is the row length.
func wholeRows(a *tensor.Args, bytes int, operands ...int) bool {
	at := uintptr(bytes)
	for _, i := range operands {
		at |= uintptr(a.X[i])
	}
	return at%16 == 0
}

// wideNormGrad computes the gradients of rows that are too long for a block: one launch for each gradient.
func (q *Queue) wideNormGrad(a *tensor.Args, centered bool) {
	step := func(op tensor.Op, add float64, x ...int) {
		s := &q.sub
		*s = tensor.Args{Op: op, DType: a.DType, Outs: 1, N: len(x), Dim: a.Dim}
		for i, from := range x {
			s.X[i], s.Len[i], s.DT[i] = a.X[from], a.Len[from], a.DT[from]
		}
		s.F[0] = add
		if s.X[0] != nil {
			table[op][a.DType](q, s)
		}
	}
	if !centered {
		step(ops.OpRMSNormGradX, a.F[0], 0, 2, 3, 4, 5)
		step(ops.OpRMSNormGradW, a.F[1], 1, 2, 3, 5)
		return
	}
	step(ops.OpLayerNormGradX, a.F[0], 0, 3, 4, 5, 6, 7)
	step(ops.OpLayerNormGradW, a.F[1], 1, 3, 4, 6, 7)
	step(tensor.OpColSum, a.F[2], 2, 4)
}

// warpRow is the longest row that one warp computes. Its lanes need not wait for other warps.
const warpRow = 1024

// byNormRow launches a warp for each of a's rows, with eight rows in a block if that divides their number; a block for each long row.
func byNormRow(operands int, more func(q *Queue, a *tensor.Args)) launcher {
	return func(q *Queue, k *kernel, a *tensor.Args) {
		q.ptrs(a, operands)
		q.i64(a.Dim[1])
		more(q, a)
		if a.Dim[1] > warpRow {
			q.rows(k, a, rowWarps)
			return
		}
		warps := 8
		for a.Dim[0]%warps != 0 {
			warps /= 2
		}
		if a.Dim[0] > 0 {
			q.run(k, cuda.Dim{X: a.Dim[0] / warps}, cuda.Dim{X: 32, Y: warps}, 0)
		}
	}
}

func normAdd(q *Queue, a *tensor.Args) { q.args.I32(truthOf(a.F[0])) }

var normKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpLayerNorm:      resident("norm.cu", "layer_norm", 6, []int{0, 3, 4, 5}, eps, byNormRow),
	ops.OpLayerNormGradX: resident("norm.cu", "layer_norm_grad_x", 6, []int{0, 1, 2, 3}, normAdd, byNormRow),
	ops.OpLayerNormGradW: gradW(true),
	ops.OpLayerNormGrad:  normGrads(true),
	ops.OpRMSNorm:        resident("norm.cu", "rms_norm", 4, []int{0, 2, 3}, eps, byNormRow),
	ops.OpRMSNormGradX:   resident("norm.cu", "rms_norm_grad_x", 5, []int{0, 1, 2, 3}, normAdd, byNormRow),
	ops.OpRMSNormGradW:   gradW(false),
	ops.OpRMSNormGrad:    normGrads(false),
}
