package tensor

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// Activation is a function that [LinearAct] applies to each element.
type Activation = kernel.Activation

// The activations of [LinearAct]: [Tensor.ReLU], [Tensor.GELU], [Tensor.GELUTanh] and [Tensor.SiLU].
const (
	NoActivation = kernel.NoActivation
	ActReLU      = kernel.ActReLU
	ActGELU      = kernel.ActGELU
	ActGELUTanh  = kernel.ActGELUTanh
	ActSiLU      = kernel.ActSiLU
)

// Linear returns x·wᵀ + b for x [..., in], w [out, in] and b [out] (or none), as torch.nn.functional.linear.
func Linear(x, w, b Tensor) Tensor { return LinearAct(x, w, b, NoActivation) }

// LinearAct returns act(x·wᵀ + b) in one operation: x·wᵀ is still in the cache when act is applied. On the CPU the result has the same bits
// as [Linear] followed by the activation.
func LinearAct(x, w, b Tensor, act Activation) Tensor {
	t := tapeOfOp(OpLinear, x, w)
	xh, wh, bh := t.arg(x), t.arg(w), t.maybeArg(b)
	t.checkLinear(xh, wh, bh)
	out := t.blankHeader()
	out.sizeAs(xh)
	out.dims[out.ndim-1], out.n = wh.dims[0], xh.rowCount()*wh.dims[0]
	t.alloc(out)
	var pre *header // the input of an activation, if its gradient needs it
	if act.NeedsInput() && t.records() {
		pre = t.newLike(out)
	}
	t.linear(out, xh, wh, bh, act, pre)
	op := OpLinear
	if act != NoActivation {
		op = OpLinearAct
	}
	n := t.rec(op, out, xh, wh, bh)
	if n != nil {
		n.I[0] = int(act)
	}
	switch {
	case pre == nil:
	case n != nil:
		n.aux[0] = pre
	default:
		t.release(pre)
	}
	return out.tensor()
}

func (t *Tape) checkLinear(x, w, b *header) {
	if x.dtype != w.dtype || b != nil && b.dtype != x.dtype {
		t.sameDType("linear", slices.DeleteFunc(these(x, w, b), func(h *header) bool { return h == nil })...)
	}
	if x.ndim < 1 || w.ndim != 2 || x.dims[x.ndim-1] != w.dims[1] || b != nil && (b.ndim != 1 || b.n != w.dims[0]) {
		in := these(x, w, b)
		if x.ndim < 1 || w.ndim != 2 || b != nil && b.ndim != 1 {
			fail("linear", in, "wants an input [..., in], a weight [out, in] and a bias [out]")
		}
		mustMatch("linear", x, int(x.ndim)-1, "the input", w, 1, "the weight", in...)
		if b != nil {
			mustMatch("linear", b, 0, "the bias", w, 0, "the weight", in...)
		}
	}
}

// linearVJP computes the gradients of x, w and b from that of x·wᵀ + b.
func linearVJP(t *Tape, n *Node, need uint8) {
	x, w, g := n.in[0], n.in[1], n.out.grad
	m, out, in := x.rowCount(), w.dims[0], w.dims[1]
	if sums := n.aux[1]; sums != nil && need&4 != 0 { // see activationGrad
		n.aux[1] = nil
		t.addGrad(n.in[2], sums)
		need &^= 4
	}
	if need&1 != 0 {
		t.linearGradX(x, g, w, gemm{batch: 1, m: m, n: in, k: out})
	}
	if need&6 == 0 || t.linearsGrad(n, need) {
		return
	}
	var dw, db *header
	var beta, more float64
	if need&2 != 0 {
		dw, beta = t.gradTarget(w)
	}
	if need&4 != 0 {
		db, more = t.gradTarget(n.in[2])
	}
	t.weightGrad(n, dw, db, beta, more)
	if dw != nil {
		t.gradDone(w, dw)
	}
	if db != nil {
		t.gradDone(n.in[2], db)
	}
}

// weightGrad launches the gradients dw = beta·dw + gᵀ·x of the weight and db = more·db + the sum of g's rows of the bias, or one of them.
func (t *Tape) weightGrad(n *Node, dw, db *header, beta, more float64) {
	x, g := n.in[0], n.out.grad
	rows, out := x.rowCount(), n.in[1].dims[0]
	p := gemm{batch: 1, m: out, n: n.in[1].dims[1], k: rows, ta: true, beta: beta}
	if dw != nil && db != nil && more == 0 && dw.n > 0 && t.table[OpLinearGradW][g.dtype] != nil {
		p.sums = db
	}
	if dw != nil {
		t.gemm(dw, g, x, &p)
	}
	if db != nil && p.sums == nil {
		t.colSum(db, g, rows, out, more)
	}
}

// colSum launches dst = beta·dst + the sum over rows of x [rows, cols].
func (t *Tape) colSum(dst, x *header, rows, cols int, beta float64) {
	if cols == 0 {
		return
	}
	a := t.Args(OpColSum, x.dtype)
	a.out(dst).in(x)
	a.Dim[0], a.Dim[1] = rows, cols
	a.F[0] = beta
	t.Launch()
}
