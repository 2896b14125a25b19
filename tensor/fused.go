package tensor

// The optional fused operations do several operations in one launch, on devices that have a kernel for it. They change results only by
// fewer roundings of 16-bit floats. Without one, a step has more launches. The table shows what each of them saves in a step of GPT-2 124M
// (bfloat16, 32 × 1024 tokens, 233 launches, 71.4 GB, 47.8 ms on the model of an H100), if only that one is removed (docs/BENCHMARKS.md):
//
//	OpLinearAct         an activation inside its product                  2.4 GB  12 launches  1.7 ms
//	OpLinearAdd         a residual connection inside its product          2.4 GB  24 launches  1.3 ms
//	OpLinearGradX       an activation's gradient in the product after it  4.8 GB  12 launches  2.5 ms
//	OpLinearGradW       a bias's gradient in that of its weight           5.4 GB  48 launches  1.9 ms
//	ops.OpCrossEntropyBoth: a loss and its gradient                       3.3 GB   4 launches  1.2 ms
//	ops.OpLayerNormGrad, ops.OpRMSNormGrad: all gradients of a norm       6.2 GB  74 launches  2.2 ms
//	OpLinears: two or three layers of one input in one product                    48 launches (not measured)
//	all                                                                  24.6 GB 174 launches 10.8 ms
//
// OpActGrad is for float32 and float64, whose products have no such epilogue: it computes an activation's gradient and the sums of its
// rows.

// activationOps are the operations of each activation and of its gradient.
var activationOps = [...]struct{ op, grad Op }{
	ActReLU:     {OpReLU, OpReLUGrad},
	ActGELU:     {OpGELU, OpGELUGrad},
	ActGELUTanh: {OpGELUTanh, OpGELUTanhGrad},
	ActSiLU:     {OpSiLU, OpSiLUGrad},
}

// linear launches out = act(x·wᵀ + b) and, if pre is not nil, pre = x·wᵀ + b. It launches two operations if the device has no kernel for
// both.
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

// LinearAdd returns r + x·wᵀ + b for r [..., out]: the residual connection of a transformer's layers. It is one operation if the device has
// a kernel for it.
func LinearAdd(x, w, b, r Tensor) Tensor {
	t := tapeOfOp(OpLinearAdd, x, w)
	xh, wh, bh, rh := t.arg(x), t.arg(w), t.maybeArg(b), t.contiguous(t.arg(r))
	t.checkLinear(xh, wh, bh)
	t.sameDType("linear_add", xh, rh)
	if rh.ndim != xh.ndim || rh.n != xh.rowCount()*wh.dims[0] || rh.dims[rh.ndim-1] != wh.dims[0] {
		like := *xh // has the shape of the product plus the bias
		like.base, like.dims[like.ndim-1] = nil, wh.dims[0]
		mustBeAlike("linear_add", rh, "what is added to", &like, "the product", xh, wh, rh)
	}
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
	linearVJP(t, n, need)
}

// linearGradX computes the gradient of x. If the node before made x by an activation, nothing else reads x, and nothing else gave x a
// gradient, it computes the gradient of the activation's input instead. Then that node is treated as a plain product, whose gradient is
// ready.
func (t *Tape) linearGradX(x, g, w *header, p gemm) {
	if by := t.activationBefore(x); by != nil {
		d := t.newLike(x)
		p.act, p.slope = Activation(by.I[0]), by.aux[0]
		t.gemm(d, g, w, &p)
		t.addGrad(x, d)
		by.op = OpLinear
		return
	}
	dst, beta := t.gradTarget(x)
	p.beta = beta
	t.gemm(dst, g, w, &p)
	t.gradDone(x, dst)
}

// activationBefore returns the previous node if it made x by an activation whose gradient a product can compute.
func (t *Tape) activationBefore(x *header) *Node {
	if t.at == 0 || x.uses != 1 || x.grad != nil || x.more != nil || x.n == 0 || t.table[OpLinearGradX][x.dtype] == nil {
		return nil
	}
	if by := t.node(t.at - 1); by.op == OpLinearAct && by.out == x && Activation(by.I[0]).NeedsInput() {
		return by
	}
	return nil
}

// linearActVJP computes the gradient of x·wᵀ + b from that of the activation. Then the node is treated as a plain product, also if its
// weight gradients are put off.
func linearActVJP(t *Tape, n *Node, need uint8) {
	d := t.activationGrad(n)
	d.isGrad = true
	t.dropGrad(n.out)
	n.op, n.out.grad = OpLinear, d
	linearVJP(t, n, need)
}

// activationGrad returns the gradient of the activation's input, in the memory of that input if it is kept. If the kernel also adds up the
// rows, their sum, the gradient of b, goes to aux[1].
func (t *Tape) activationGrad(n *Node) *header {
	g, act, from, d := n.out.grad, Activation(n.I[0]), n.out, n.aux[0]
	if act.NeedsInput() {
		from = n.aux[0]
	}
	if t.keepAll || !act.NeedsInput() {
		d = t.newLike(n.out)
	} else {
		n.aux[0] = nil
	}
	if t.table[OpActGrad][d.dtype] == nil || d.n == 0 {
		t.unary(activationOps[act].grad, d, g, from)
		return d
	}
	a := t.Args(OpActGrad, d.dtype)
	a.out(d)
	if n.need&4 != 0 && t.table[OpLinearGradW][d.dtype] == nil { // linearVJP gets it at no cost
		n.aux[1] = t.newLike(n.in[2])
		a.out(n.aux[1])
	}
	a.in(g).in(from)
	a.Dim[0], a.Dim[1], a.I[0] = n.out.rowCount(), n.out.dims[n.out.ndim-1], int(act)
	t.Launch()
	return d
}
