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

// LinearAdd returns r + x·wᵀ + b for r [..., out], in one operation where the device has one: the residual connection of a
// transformer's layers.
func LinearAdd(x, w, b, r Tensor) Tensor {
	t := tapeOfOp(OpLinearAdd, x, w)
	xh, wh, rh := t.arg(x), t.arg(w), t.contiguous(t.arg(r))
	var bh *header
	if !b.IsZero() {
		bh = t.arg(b)
	}
	t.checkLinear(xh, wh, bh)
	t.sameDType("linear_add", xh, rh)
	t.mustShape("linear_add", rh.rank == xh.rank && rh.n == xh.rowCount()*wh.dims[0] && rh.dims[rh.rank-1] == wh.dims[0], xh, wh, rh)
	out := t.newLike(rh)
	g := gemm{batch: 1, m: xh.rowCount(), n: wh.dims[0], k: wh.dims[1], tb: true, bias: bh}
	if t.table[OpLinearAdd][out.dtype] != nil && g.k > 0 {
		g.add = rh
		t.gemm(out, xh, wh, &g)
	} else {
		t.gemm(out, xh, wh, &g)
		t.binary(OpAdd, out, rh, out)
	}
	t.rec(OpLinearAdd, out, xh, wh, bh, rh)
	return out.tensor()
}

func linearAddVJP(t *Tape, n *Node, need uint8) {
	if need&8 != 0 {
		t.addGrad(n.in[3], t.alias(n.out.grad))
	}
	linearGrads(t, n, need, n.out.grad)
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

func linearVJP(t *Tape, n *Node, need uint8) { linearGrads(t, n, need, n.out.grad) }

// linearGrads computes the gradients of x, w and b from that of x·wᵀ + b.
func linearGrads(t *Tape, n *Node, need uint8, g *header) {
	x, w := n.in[0], n.in[1]
	m, out, in := x.rowCount(), w.dims[0], w.dims[1]
	if need&1 != 0 {
		t.linearGradX(x, g, w, gemm{batch: 1, m: m, n: in, k: out})
	}
	var dw, db *header
	p, more := gemm{batch: 1, m: out, n: in, k: m, ta: true}, 0.0
	if need&2 != 0 {
		dw, p.beta = t.gradTarget(w)
	}
	if need&4 != 0 {
		db, more = t.gradTarget(n.in[2])
	}
	if dw != nil && db != nil && more == 0 && dw.n > 0 && t.table[OpLinearGradW][g.dtype] != nil {
		p.sums = db
	}
	if dw != nil {
		t.gemm(dw, g, x, &p)
		t.gradDone(w, dw)
	}
	if db != nil {
		if p.sums == nil {
			t.colSum(db, g, m, out, more)
		}
		t.gradDone(n.in[2], db)
	}
}

// linearGradX computes the gradient of x. If the node before made x by an activation and nothing else reads x, that of the
// activation's input takes its place: one launch less, where the device has a kernel for both.
func (t *Tape) linearGradX(x, g, w *header, p gemm) {
	if t.at > 0 && x.uses == 1 && x.n > 0 && t.table[OpLinearGradX][x.dtype] != nil {
		by := t.node(t.at - 1)
		if p.act = Activation(by.I[0]); by.out == x && by.op == OpLinearAct && p.act.NeedsInput() {
			d := t.newLike(x)
			p.slope, by.I[2] = by.aux[0], 1
			t.gemm(d, g, w, &p)
			t.addGrad(x, d)
			return
		}
		p.act = NoActivation
	}
	dst, beta := t.gradTarget(x)
	p.beta = beta
	t.gemm(dst, g, w, &p)
	t.gradDone(x, dst)
}

// linearActVJP is called twice when weight gradients are deferred: the first call makes the gradient of x·wᵀ + b, in
// aux[0] in place of what it was computed from, and where one kernel does both that of b, in aux[1].
func linearActVJP(t *Tape, n *Node, need uint8) {
	if n.I[1] == 0 {
		n.I[1] = 1
		t.activationGrad(n)
		t.dropGrad(n.out)
	}
	if db := n.aux[1]; db != nil && need&4 != 0 {
		n.aux[1] = nil
		t.addGrad(n.in[2], db)
		need &^= 4
	}
	linearGrads(t, n, need, n.aux[0])
}

func (t *Tape) activationGrad(n *Node) {
	g, act, from := n.out.grad, Activation(n.I[0]), n.out
	if n.I[2] != 0 { // see linearGradX
		t.release(n.aux[0])
		n.aux[0] = t.alias(g)
		return
	}
	if act.NeedsInput() {
		from = n.aux[0]
	}
	d := from
	if t.keepAll || !act.NeedsInput() {
		d = t.newLike(n.out)
		n.aux[0] = d
	}
	if t.table[OpActGrad][d.dtype] == nil || d.n == 0 {
		t.unary(activationOps[act].grad, d, g, from)
		return
	}
	a := t.Args(OpActGrad, d.dtype)
	a.out(d)
	if n.need&4 != 0 && t.table[OpLinearGradW][d.dtype] == nil { // else linearGrads has it for nothing
		n.aux[1] = t.newLike(n.in[2])
		a.out(n.aux[1])
	}
	a.in(g).in(from)
	a.Dim[0], a.Dim[1], a.I[0] = n.out.rowCount(), n.out.dims[n.out.rank-1], int(act)
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
