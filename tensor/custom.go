package tensor

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

// Refuse panics with a *Failure if operands have a kind that does not fit along the axes in bad. On a tape that records nothing, and on a
// rank without rows, nothing is refused.
func (op Op) Refuse(in []Tensor, bad Axes, c Clash, have, want Kind) {
	if t := op.Tape(in...); bad != 0 && t.recording() {
		op.clash(headersOf(in), bad, c, have, want)
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
func (t *Tape) Records() bool { return t.recording() }

// Packed returns x on the tape, without gaps: x itself, or a copy, which is recorded.
func (t *Tape) Packed(x Tensor) Tensor { return t.contiguous(t.arg(x)).tensor() }

// Integers is Packed for counts or positions: Int32 become Int64. Others stay what they are.
func (t *Tape) Integers(x Tensor) Tensor { return t.integers(x).tensor() }

// CheckIndices fails unless ids, of Integers, are Int64 and, in host memory, of 0 to n−1: op chooses by them from x.
func (t *Tape) CheckIndices(op Op, x, ids Tensor, n int) {
	t.checkIndex(op.String(), x.hdr(), ids.hdr(), n)
}

// NotAlong says of out, which op made from x by a rule of RowsByCaller, that it is not linear along dimension dim of x, and that all other
// dimensions are what they are in x. If rows of the batch are there, out is this rank's own.
func (t *Tape) NotAlong(op Op, out, x Tensor, dim int) {
	if t.typing() {
		t.notAlong(op.String(), out.hdr(), x.hdr(), dim, false)
	}
}

// SameTypes gives out, positions or counts that are not recorded, the types of x.
func (t *Tape) SameTypes(out, x Tensor) { out.hdr().ty = x.hdr().ty }

// Save keeps one or two tensors that an operation made besides its output for its gradient rule. If n is nil, it frees them.
func (t *Tape) Save(n *Node, xs ...Tensor) {
	for i, x := range xs {
		if n != nil {
			n.aux[i] = x.hdr()
		} else {
			t.release(x.hdr())
		}
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

// Target returns y, the labels or another target of a loss of x, as Integers does. It fails if they have other rows of the batch than x.
func (t *Tape) Target(op string, x, y Tensor) Tensor {
	t.checkTarget(op, x, y)
	h := t.integers(y)
	if h.tape == nil {
		h = t.alias(h)
	}
	return h.tensor()
}

// TargetCount returns the number of elements of y, a target of x, in the global batch, which losses divide by, as GlobalCount does.
func (t *Tape) TargetCount(op string, x, y Tensor) int { return t.globalCount(op, y.hdr(), x.hdr()) }

// LossType gives out, the cross-entropy of logits Linear(x, w), which are never made, the types that CrossEntropy of these logits has, and
// checks x, w and the labels y as it does. Where ranks divide the classes, split has the types of a loss of such logits; else it is nil.
func (t *Tape) LossType(out, x, w, y Tensor, split Typed) {
	if !t.typing() {
		return
	}
	record, again := t.record, t.recompute
	defer func() { t.record, t.recompute = record, again }()
	t.record, t.recompute = false, true // the uses were counted
	xh, wh, yh, h, logits := x.hdr(), w.hdr(), y.hdr(), out.hdr(), t.blankHeader()
	logits.sizeAs(xh)
	logits.dims[logits.ndim-1], logits.n = wh.dims[0], xh.rowCount()*wh.dims[0]
	t.rec(OpLinear, logits, xh, wh)
	if split != nil {
		if types := t.typesOf(OpCrossEntropy.String(), split, append(t.operands(1)[:0], logits)); types != nil {
			h.ty = types[0]
		}
		return
	}
	t.rec(OpCrossEntropy, h, logits, yh)
	t.compared(OpCrossEntropy.String(), h, logits, yh, true)
	t.lossType(h, logits)
}
