package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// OpGroupedLinear is the operation of GroupedLinear, and of the gradient of its rows; OpGroupedGrad makes the gradient of its weights.
var OpGroupedLinear, OpGroupedGrad tensor.Op

func init() {
	OpGroupedLinear = registerAll(tensor.OpSpec{Name: "grouped_linear", Class: typing.Multilinear, Rows: tensor.RowsAs0, Index: 4,
		Saves: 7, VJP: groupedVJP}, floats(groupedKernel[float32](), groupedKernel[float64](), groupedBF16))
	OpGroupedGrad = registerAll(tensor.OpSpec{Name: "grouped_grad", Const: true},
		floats(groupedGradKernel[float32](), groupedGradKernel[float64](), groupedGradBF16))
}

// GroupedLinear multiplies each group of rows by its own matrix, as a mixture of experts does. The first counts[0] rows of x [rows, in] are
// multiplied by the transpose of w[0], the next counts[1] rows by that of w[1], and so on, for w [groups, out, in]. It returns [rows, out].
// Groups may be empty. counts [groups] are Int64 or Int32, and their sum is the number of rows.
func GroupedLinear(x, w, counts tensor.Tensor) tensor.Tensor {
	t := OpGroupedLinear.Tape(x, w)
	x, w, counts = t.Packed(x), t.Packed(w), t.Integers(counts)
	OpGroupedLinear.SameDType(x, w)
	in := []tensor.Tensor{x, w, counts}
	if x.NDim() != 2 || w.NDim() != 3 || counts.NDim() != 1 {
		OpGroupedLinear.Fail(in, "wants rows [n, in], weights [groups, out, in] and counts [groups]")
	}
	mustMatch(OpGroupedLinear, x, 1, "the rows", w, 2, "the weights", in...)
	mustMatch(OpGroupedLinear, counts, 0, "the counts", w, 0, "the weights", in...)
	if counts.DType() != tensor.Int64 {
		OpGroupedLinear.Fail(in[2:], "counts must be int64 or int32")
	}
	out := t.New(x.DType(), x.Dim(0), w.Dim(1))
	grouped(t, OpGroupedLinear, out, x, w, counts, w.Dim(1), w.Dim(2), true, 0)
	t.Record(OpGroupedLinear, out, x, w, counts)
	return out
}

// grouped launches, for OpGroupedLinear, c = a·b[e] + beta·c for each group e of rows, where b[e] is k x n, or n x k if tb. For
// OpGroupedGrad it launches c[e] = aᵀ·b + beta·c[e] for each group of rows; a has n columns and b has k.
func grouped(t *tensor.Tape, op tensor.Op, c, a, b, counts tensor.Tensor, n, k int, tb bool, beta float64) {
	args := t.Args(op, a.DType()).Out(c).In(a).In(b).In(counts)
	args.Dim[0], args.Dim[1], args.Dim[2], args.Dim[3] = a.Dim(0), n, k, counts.Len()
	args.NDim = 4
	args.I[0], args.F[0] = b2i(tb), beta
	t.Launch()
}

func groupedVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, w, counts, g := n.In(0), n.In(1), n.In(2), n.Grad()
	out, in := w.Dim(1), w.Dim(2)
	if need&1 != 0 {
		dst, beta := t.GradTarget(n, 0)
		grouped(t, OpGroupedLinear, dst, g, w, counts, in, out, false, beta)
		t.GradDone(n, 0, dst)
	}
	if need&2 != 0 {
		dst, beta := t.GradTarget(n, 1)
		grouped(t, OpGroupedGrad, dst, g, x, counts, out, in, false, beta)
		t.GradDone(n, 1, dst)
	}
}

// checkCounts panics unless the counts add up to rows.
func checkCounts(counts []int64, rows int) {
	left := int64(rows)
	for _, n := range counts {
		if n < 0 || n > left {
			left = -1
			break
		}
		left -= n
	}
	if left != 0 {
		OpGroupedLinear.Fail(nil, "group sizes %v do not fit %d rows", counts, rows)
	}
}
