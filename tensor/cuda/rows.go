package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The largest number of warps in a block for one row: at most MAX_WARPS of rows.cu and norm.cu.
const (
	rowWarps     = 16
	longRowWarps = 32 // if a row is read twice: fewer blocks run at a time, so that the rows stay in a cache
)

// byRow launches a block for each of a's rows. Parameters: the operands, the number of columns, then those that more adds.
func byRow(operands int, more func(q *Queue, a *tensor.Args)) launcher {
	return func(q *Queue, k *kernel, a *tensor.Args) {
		q.ptrs(a, operands)
		q.i64(a.Dim[1])
		if more != nil {
			more(q, a)
		}
		q.rows(k, a, rowWarps)
	}
}

// rows launches a block for each row. A thread reads 32 bytes of the row; for short rows, 16.
func (q *Queue) rows(k *kernel, a *tensor.Args, most int) {
	if a.Dim[0] > 0 {
		pieces := (a.Dim[1]*a.DType.Size() + 511) / 512
		warps := max(min(pieces, 4), (pieces+1)/2, 1)
		q.run(k, cuda.Dim{X: a.Dim[0]}, cuda.Dim{X: 32 * min(warps, most)}, 0)
	}
}

func causal(q *Queue, a *tensor.Args) { q.i64(a.I[0]) }

// The ring of cross_entropy_ring.cu.
const (
	ringLanes = 512            // LANES
	ringPiece = 2 * 16 * 512   // PIECE
	ringSlot  = ringPiece + 16 // a piece and its barriers
	ringSlots = 13             // so many fit into shared memory
	ringLeast = 2 * ringPiece  // bytes of a row; shorter ones stay in a cache
)

// crossEntropies make the kernels of OpCrossEntropy or, if there is a third output, OpCrossEntropyBoth. That for long rows is for compute
// capability 9.0 if RINGO_HOPPER=1 asks for it.
var crossEntropies = func() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range floatTypes {
		var ring *kernel
		if t != tensor.Float64 {
			ring = newKernel("cross_entropy_ring.cu", "cross_entropy_ring", elems[t])
			ring.shared, ring.specific = ringSlots*ringSlot, true
		}
		r[t] = cell(newKernel("rows.cu", "cross_entropy", elems[t]), func(q *Queue, k *kernel, a *tensor.Args) {
			x, bytes := a.Outs, a.Dim[1]*t.Size()
			pieces := (bytes + ringPiece - 1) / ringPiece
			inRing := q.dev.hopper && ring != nil && bytes >= ringLeast && pieces <= ringSlots && wholeRows(a, bytes, x)
			q.ptrs(a, 2)
			if a.Outs == 3 {
				q.ptr(a, 2)
				inRing = inRing && wholeRows(a, bytes, 2)
			} else {
				q.args.Ptr(0)
			}
			q.ptr(a, x).ptr(a, x+1)
			if inRing {
				q.i64(a.Dim[0]).args.I32(a.Dim[1])
			} else {
				q.i64(a.Dim[1])
			}
			q.wide(t, a.F[0]).i64(a.I[0]).wide(t, a.F[1]).check()
			if !inRing {
				q.rows(k, a, longRowWarps)
			} else if a.Dim[0] > 0 {
				slots := min(pieces+2, ringSlots)
				q.args.I32(slots)
				q.run(ring, cuda.Dim{X: min(a.Dim[0], q.dev.sms)}, cuda.Dim{X: ringLanes + 32}, slots*ringSlot)
			}
		})
	}
	return r
}()

func crossEntropyGrad(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 5).i64(a.Len[4]).i64(a.Dim[1]).wide(a.DType, a.F[0]).i64(a.I[0]).rows(k, a, rowWarps)
}

var rowKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpSoftmax:          resident("rows.cu", "softmax", 2, []int{0, 1}, nil, byRow),
	ops.OpSoftmaxGrad:      resident("rows.cu", "softmax_grad", 3, []int{0, 1, 2}, nil, byRow),
	ops.OpSoftmaxCausal:    resident("rows.cu", "softmax_causal", 2, []int{0, 1}, causal, byRow),
	ops.OpLogSoftmax:       resident("rows.cu", "log_softmax", 2, []int{0, 1}, nil, byRow),
	ops.OpLogSoftmaxGrad:   resident("rows.cu", "log_softmax_grad", 3, []int{0, 1, 2}, nil, byRow),
	ops.OpLogSumExp:        resident("rows.cu", "log_sum_exp", 2, []int{1}, nil, byRow),
	ops.OpLogSumExpGrad:    floats("rows.cu", "log_sum_exp_grad", byRow(4, nil)),
	ops.OpCrossEntropy:     crossEntropies,
	ops.OpCrossEntropyBoth: crossEntropies,
	ops.OpCrossEntropyGrad: floats("rows.cu", "cross_entropy_grad", crossEntropyGrad),
}
