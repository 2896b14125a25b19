package tensor

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// What operations of other packages need besides Register, Tape.Record and Exec.Launch: package ops is made of it.

// Tape returns the tape of the first operand that has one. It is a Failure of op if none has.
func (op Op) Tape(xs ...Tensor) *Tape { return tapeOf(op.String(), xs...) }

// Fail panics with a *Failure of op about operands, of which some may be none.
func (op Op) Fail(in []Tensor, format string, a ...any) {
	fail(op.String(), headersOf(in), format, a...)
}

// SameDType fails unless all operands have the same element type.
func (op Op) SameDType(in ...Tensor) {
	for _, x := range in[1:] {
		if x.DType() != in[0].DType() {
			failSame(op.String(), headersOf(in))
		}
	}
}

// Refuse panics with a *Failure if operands do not fit along the axes in bad. On a tape that records nothing, and on a
// rank without rows, nothing is refused.
func (op Op) Refuse(in []Tensor, bad typing.Misfit) {
	if t := op.Tape(in...); bad.Axes != 0 && t.records() {
		clash(op.String(), headersOf(in), bad)
	}
}

func headersOf(xs []Tensor) []*header {
	hs := make([]*header, len(xs))
	for i, x := range xs {
		hs[i] = x.h
	}
	return hs
}

// NameOr returns the name of the parameter that x is or views, or else role: what errors call an operand.
func (x Tensor) NameOr(role string) string { return x.hdr().called(role) }

// Records reports whether operations are recorded now, for gradients.
func (t *Tape) Records() bool { return t.records() }

// Packed returns x on the tape, without gaps: x itself, or a copy, which is recorded.
func (t *Tape) Packed(x Tensor) Tensor { return t.contiguous(t.arg(x)).tensor() }

// Integers is Packed for counts or positions: Int32 become Int64. Others stay what they are.
func (t *Tape) Integers(x Tensor) Tensor {
	h := t.arg(x)
	if h.dtype == Int32 {
		h = t.alias(h).tensor().Cast(Int64).h
	}
	return t.contiguous(h).tensor()
}

// CheckIndices fails unless ids, of Integers, are Int64 and, in host memory, of 0 to n−1: op chooses by them from x.
func (t *Tape) CheckIndices(op Op, x, ids Tensor, n int) {
	in := []Tensor{x, ids}
	if ids.DType() != Int64 {
		op.Fail(in, "indices must be int64 or int32")
	}
	if !t.dev.Host() {
		return
	}
	list := Data[int64](ids)
	if i := kernel.CheckIndex(list, n); i >= 0 {
		op.Fail(in, "index %d is %d, not in [0,%d)", i, list[i], n)
	}
}

// NotAlong says of out, which op made from x by a rule of RowsByCaller, that it is not linear along dimension dim of x, and that all other
// dimensions are what they are in x. If rows of the batch are there, out is this rank's own.
func (t *Tape) NotAlong(op Op, out, x Tensor, dim int) {
	if t.typing() {
		t.notAlong(op.String(), out.hdr(), x.hdr(), dim, false)
	}
}

// ReduceTypes says of out, which op made from x by a rule of RowsByCaller, that it lacks x's dimension dim, along which op is not linear.
func (t *Tape) ReduceTypes(op Op, out, x Tensor, dim int) {
	t.reduced(op.String(), out.hdr(), x.hdr(), 1<<dim, false)
}

// SameTypes gives out, positions or counts that are not recorded, the types of x.
func (t *Tape) SameTypes(out, x Tensor) { out.hdr().ty = x.hdr().ty }

// SamePlaces is SameTypes of out that has x's rows where x has them, and may have a further dimension at the end.
func (t *Tape) SamePlaces(out, x Tensor) { out.hdr().ty, out.hdr().at = x.hdr().ty, x.hdr().at }

// MeetTypes makes out, of op, this rank's own if it is of rows of x that met others of y: both have them in dimension 0.
func (t *Tape) MeetTypes(op Op, out, x, y Tensor) {
	in, other := x.hdr(), y.hdr()
	if same := in.at.Rows() == other.at.Rows() && in.at.Ordered(); !same && in.at.Of != 0 && other.at.Of != 0 && t.typing() && !t.hasNoRows() {
		t.own(op.String(), out.hdr(), t.batchAt(in.at), true, false, "where other rows of this rank meet")
	}
}

// SumTypes is SameTypes of out that is a sum of something over all elements of x.
func (t *Tape) SumTypes(out, x Tensor) {
	in := x.hdr()
	out.hdr().ty = in.ty.With(in.ty.On(Varying), Partial)
}

// TargetsOf returns y, targets for x on the tape, as those of x's rows, if they do not say which rows they are of. Targets that are not
// floats lack x's last dimension.
func (t *Tape) TargetsOf(x, y Tensor) Tensor {
	h, l := x.hdr(), y.hdr()
	soft := l.dtype.IsFloat()
	own := l.at.Of != 0 || !soft && (h.at.Of == 0 || l.ndim != h.ndim-1)
	if l.tape == nil || !own && !soft {
		l = t.alias(l)
	}
	if own {
		return l.tensor()
	}
	if l.ty, l.at = l.ty.With(h.ty.On(Varying), Varying), h.at; !soft {
		l.at, _, _, _ = h.at.Reduce(1<<l.ndim, int(h.ndim))
	}
	return l.tensor()
}

// MustBeWhole fails if x is a part of the features, which op needs together.
func (t *Tape) MustBeWhole(op Op, x Tensor) { mustBeWhole(op.String(), t.arg(x)) }

// GlobalCount returns the number of elements of y, targets for x, in the global batch: what a mean divides by.
func (t *Tape) GlobalCount(op Op, x, y Tensor) int {
	return t.globalCount(op.String(), y.hdr(), x.hdr())
}

// SharesBatch reports whether the ranks have parts of the step's batch.
func (t *Tape) SharesBatch() bool {
	return t.rows.Total > t.rows.N || t.rows.Seq.Total > t.rows.Positions
}

// LossTypes says of out, which op made from x and its targets y by a rule of RowsByCaller, that it is a sum over rows, divided by their
// number in the global batch. Targets that are not floats may be flattened, and lack x's last dimension.
func (t *Tape) LossTypes(op Op, out, x, y Tensor) {
	h, in := out.hdr(), x.hdr()
	if t.noGrad && !y.DType().IsFloat() { // a tape with gradients refuses the loss
		mustBeWhole(op.String(), in)
	}
	t.compared(op.String(), h, in, y.hdr(), !y.DType().IsFloat())
	h.ty, h.at = h.ty.With(h.ty.On(Varying)&t.batchAt(in.at).Over, Partial), place{}
}

// RowLossTypes is LossTypes for out that has a loss for each of the labels y.
func (t *Tape) RowLossTypes(op Op, out, x, y Tensor) {
	if !t.typing() {
		return
	}
	h, in := out.hdr(), x.hdr()
	t.compared(op.String(), h, in, y.hdr(), true)
	t.notAlong(op.String(), h, in, int(in.ndim)-1, true)
	if lead := *in; lead.ndim-1 != h.ndim {
		lead.ndim, lead.at = lead.ndim-1, h.at
		t.reshaped(h, &lead, -1)
	}
}

// Batch returns the part of the batch that the step has: Rows, with the number of rows and positions. For x with whole sequences, which
// were gathered, they are whole.
func (t *Tape) Batch(x Tensor) layout.Batch {
	if x.IsZero() {
		return t.rows
	}
	return batchOf(t.rows, x.hdr())
}

// View returns the first elements of x, which is on no tape and has no gaps, as a tensor of the tape.
func (t *Tape) View(x Tensor, dims ...int) Tensor {
	h := t.alias(x.hdr())
	h.setDims(dims)
	return h.tensor()
}

// Reaches reports whether the device's kernels can read x's memory.
func (t *Tape) Reaches(x Tensor) bool { return t.reaches(x.hdr()) }

// CopyInto writes part to the elements from lo on of dimension dim of x, which is on no tape, or new.
func (t *Tape) CopyInto(x Tensor, dim, lo int, part Tensor) {
	t.region(OpCopy, t.arg(part), x.hdr(), dim, lo, false)
}

// IsLoss reports whether n's output is the loss of Backward, and its gradient 1.
func (t *Tape) IsLoss(n *Node) bool { return n.out == t.root && t.scale == 1 }

// Release frees tensors that an operation made for itself, or none.
func (t *Tape) Release(xs ...Tensor) {
	for _, x := range xs {
		if !x.IsZero() {
			t.release(x.hdr())
		}
	}
}

// Save keeps one or two tensors, or none, that an operation made besides its output for its gradient rule. If n is nil, it frees them.
func (t *Tape) Save(n *Node, xs ...Tensor) {
	if n == nil {
		t.Release(xs...)
		return
	}
	for i, x := range xs {
		n.aux[i] = x.h
	}
}

// Saved returns tensor i of Tape.Save.
func (n *Node) Saved(i int) Tensor { return n.aux[i].maybe() }

// GradTarget returns memory for the gradient of n's input i, which a rule adds to beta times the old content: the gradient that is there
// already, with 1, or memory of any content, with 0. GradDone follows it. A rule that has its own memory calls AddGrad instead.
func (t *Tape) GradTarget(n *Node, i int) (dst Tensor, beta float64) {
	h, beta := t.gradTarget(n.in[i])
	return h.tensor(), beta
}

// GradInPlace returns the gradient g of n's output, and memory d for that of an input of the same shape. It is the memory of g if nobody
// else reads it: then a rule that computes each element from the same one of g writes over it, and reads n.Grad no more.
func (t *Tape) GradInPlace(n *Node) (g, d Tensor) {
	h, to := t.inPlace(n)
	return h.tensor(), to.tensor()
}

// GradDone says that dst, of GradTarget, is written.
func (t *Tape) GradDone(n *Node, i int, dst Tensor) { t.gradDone(n.in[i], dst.hdr()) }

// AddBroadcastGrad is AddGrad of g, which has the shape of n's output: it is summed along the dimensions in which input i was broadcast.
// The caller must not use g after it.
func (t *Tape) AddBroadcastGrad(n *Node, i int, g Tensor) {
	t.addGrad(n.in[i], t.sumTo(g.hdr(), n.in[i]))
}

// MatMulTo launches dst = op(a)·op(b) + beta·dst for matrices, as MatMul; it records nothing.
func (t *Tape) MatMulTo(dst, a, b Tensor, transA, transB bool, beta float64) {
	d, ah, bh := dst.hdr(), a.hdr(), b.hdr()
	g := matmulShape(ah, bh, transA, transB)
	if g.batch != 1 || d.n != g.m*g.n || d.dtype != ah.dtype || bh.dtype != ah.dtype {
		fail("matmul", these(ah, bh, d), "matrices do not fit the result")
	}
	g.beta = beta
	t.gemm(d, ah, bh, &g)
}

// LinearLossTypes is LossTypes for logits Linear(x, w) that are never made: op would have made out from them. It checks x, w and the labels
// y as they do. Where ranks divide the classes, split has the types of a loss of such logits; else it is nil.
func (t *Tape) LinearLossTypes(op Op, out, x, w, y Tensor, split Typed) {
	if !t.typing() {
		return
	}
	record, again := t.record, t.recompute
	defer func() { t.record, t.recompute = record, again }()
	t.record, t.recompute = false, true // the uses were counted
	xh, wh, logits := x.hdr(), w.hdr(), t.blankHeader()
	logits.sizeAs(xh)
	logits.dims[logits.ndim-1], logits.n = wh.dims[0], xh.rowCount()*wh.dims[0]
	t.rec(OpLinear, logits, xh, wh)
	if split != nil {
		if types := t.typesOf(op.String(), split, append(t.operands(2)[:0], logits, y.hdr())); types != nil {
			out.hdr().ty = types[0]
		}
		return
	}
	t.rec(op, out.hdr(), logits, y.hdr())
	t.LossTypes(op, out, logits.tensor(), y)
}
