package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

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

// activationOps are the operations that compute an activation alone, and its gradient.
var activationOps = [...]struct{ op, grad Op }{
	ActReLU:     {OpReLU, OpReLUGrad},
	ActGELU:     {OpGELU, OpGELUGrad},
	ActGELUTanh: {OpGELUTanh, OpGELUTanhGrad},
	ActSiLU:     {OpSiLU, OpSiLUGrad},
}

// Linear returns x·wᵀ + b for x [..., in], w [out, in] and b [out] (or none), as torch.nn.functional.linear.
func Linear(x, w, b Tensor) Tensor { return LinearAct(x, w, b, NoActivation) }

// LinearAct returns act(x·wᵀ + b), on the CPU with the bits of [Linear] and the activation one after the other but in one
// operation: x·wᵀ is still in cache when act is applied to it.
func LinearAct(x, w, b Tensor, act Activation) Tensor {
	t := tapeOfOp(OpLinear, x, w)
	xh, wh := t.arg(x), t.arg(w)
	var bh *header
	if !b.IsZero() {
		bh = t.arg(b)
	}
	t.checkLinear(xh, wh, bh)
	out := t.blankHeader()
	out.sizeAs(xh)
	out.dims[out.rank-1], out.n = wh.dims[0], xh.rowCount()*wh.dims[0]
	t.alloc(out)
	var pre *header // the input of an activation whose gradient wants it
	if act.NeedsInput() && t.recording() {
		pre = t.newLike(out)
	}
	t.linear(out, xh, wh, bh, act, pre)
	op := OpLinear
	if act != NoActivation {
		op = OpLinearAct
	}
	n := t.record3(op, out, xh, wh, bh)
	if n != nil {
		n.I[0] = int(act)
	}
	if pre != nil {
		t.keepStats(n, pre)
	}
	return out.tensor()
}

func (t *Tape) checkLinear(x, w, b *header) {
	if b != nil && (b.dtype != x.dtype || b.rank != 1 || b.n != w.dims[0]) {
		t.sameDType("linear", x, w, b)
		t.mustShape("linear", false, x, w, b)
	}
	if x.dtype != w.dtype || x.rank < 1 || w.rank != 2 || x.dims[x.rank-1] != w.dims[1] {
		t.sameDType("linear", x, w)
		t.mustShape("linear", false, x, w, b)
	}
}

// record3 is rec with an optional third input.
func (t *Tape) record3(op Op, out, x, w, b *header) *Node {
	if b == nil {
		return t.rec(op, out, x, w)
	}
	return t.rec(op, out, x, w, b)
}

// linear launches out = act(x·wᵀ + b), and pre = x·wᵀ + b if that is wanted; as two operations where the device has no
// kernel for both.
func (t *Tape) linear(out, x, w, b *header, act Activation, pre *header) {
	g := gemm{batch: 1, m: x.rowCount(), n: w.dims[0], k: w.dims[1], tb: true, bias: b, act: act, pre: pre}
	if act == NoActivation || t.table[OpLinearAct][out.dtype] != nil {
		t.gemm(out, x, w, &g)
		return
	}
	if pre == nil {
		pre = out
	}
	g.act, g.pre = NoActivation, nil
	t.gemm(pre, x, w, &g)
	t.unary(activationOps[act].op, out, pre)
}

func linearVJP(t *Tape, n *Node, need uint8) {
	g := n.out.grad
	linearGrads(t, n, need, g)
	if need&4 != 0 {
		b := n.in[2]
		dst, beta := t.gradTarget(b)
		t.colSum(dst, g, g.n/max(b.n, 1), b.n, beta)
		t.gradDone(b, dst)
	}
}

// linearGrads computes the gradients of x and w from that of x·wᵀ.
func linearGrads(t *Tape, n *Node, need uint8, g *header) {
	x, w := n.in[0], n.in[1]
	m, out, in := x.rowCount(), w.dims[0], w.dims[1]
	if need&1 != 0 {
		dst, beta := t.gradTarget(x)
		t.gemm(dst, g, w, &gemm{batch: 1, m: m, n: in, k: out, beta: beta})
		t.gradDone(x, dst)
	}
	if need&2 != 0 {
		dst, beta := t.gradTarget(w)
		t.gemm(dst, g, x, &gemm{batch: 1, m: out, n: in, k: m, ta: true, beta: beta})
		t.gradDone(w, dst)
	}
}

// linearActVJP is called twice when weight gradients are deferred: the first call makes the gradient of x·wᵀ + b, in
// aux[0] in place of what it was computed from, and that of b, in aux[1].
func linearActVJP(t *Tape, n *Node, need uint8) {
	if n.I[1] == 0 {
		n.I[1] = 1
		t.activationGrad(n)
	}
	linearGrads(t, n, need, n.aux[0])
	if need&4 != 0 {
		db := n.aux[1]
		n.aux[1] = nil
		t.addGrad(n.in[2], db)
	}
}

func (t *Tape) activationGrad(n *Node) {
	g, act, from := n.out.grad, Activation(n.I[0]), n.out
	if act.NeedsInput() {
		from = n.aux[0]
	}
	d := from
	if t.keepAll || !act.NeedsInput() {
		d = t.newLike(n.out)
		n.aux[0] = d
	}
	var db *header
	if n.need&4 != 0 {
		db = t.newLike(n.in[2])
		n.aux[1] = db
	}
	rows, cols := n.out.rowCount(), n.out.dims[n.out.rank-1]
	if t.table[OpActGrad][d.dtype] == nil || d.n == 0 {
		t.unary(activationOps[act].grad, d, g, from)
		if db != nil {
			t.colSum(db, d, rows, cols, 0)
		}
		return
	}
	a := t.Args(OpActGrad, d.dtype)
	a.out(d)
	if db != nil {
		a.out(db)
	}
	a.in(g).in(from)
	a.Dim[0], a.Dim[1], a.I[0] = rows, cols, int(act)
	t.Launch()
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
