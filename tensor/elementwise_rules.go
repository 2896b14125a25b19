package tensor

// sumTo returns g summed to the shape of h, which is the gradient of broadcasting. The caller must not use g after it.
func (t *Tape) sumTo(g, h *header) *header {
	if g.alike(h) {
		return g
	}
	mask, missing := 0, int(g.ndim)-int(h.ndim)
	for i := range int(g.ndim) {
		if g.dims[i] != 1 && (i < missing || h.dims[i-missing] == 1) {
			mask |= 1 << i
		}
	}
	if mask != 0 {
		sum := t.sumMask(g, mask)
		t.release(g)
		g = sum
	}
	g.ndim, g.dims = h.ndim, h.dims
	return g
}

func (t *Tape) product(op Op, like, x, y *header) *header {
	out := t.newLike(like)
	t.binary(op, out, x, y)
	return out
}

func addVJP(t *Tape, n *Node, need uint8) {
	for i := range 2 {
		if need&(1<<i) != 0 {
			t.addGrad(n.in[i], t.sumTo(t.alias(n.out.grad), n.in[i]))
		}
	}
}

func subVJP(t *Tape, n *Node, need uint8) {
	g := n.out.grad
	if need&1 != 0 {
		t.addGrad(n.in[0], t.sumTo(t.alias(g), n.in[0]))
	}
	if need&2 != 0 {
		m := t.newLike(g)
		t.affine(m, g, -1, 0)
		t.addGrad(n.in[1], t.sumTo(m, n.in[1]))
	}
}

func mulVJP(t *Tape, n *Node, need uint8) {
	g := n.out.grad
	for i := range 2 {
		if need&(1<<i) != 0 {
			t.addGrad(n.in[i], t.sumTo(t.product(OpMul, g, g, n.in[1-i]), n.in[i]))
		}
	}
}

// x/y has the gradients g/y for x and −g·(x/y)/y for y.
func divVJP(t *Tape, n *Node, need uint8) {
	q := t.product(OpDiv, n.out.grad, n.out.grad, n.in[1])
	if need&2 != 0 {
		m := t.product(OpMul, q, q, n.out)
		t.affine(m, m, -1, 0)
		t.addGrad(n.in[1], t.sumTo(m, n.in[1]))
	}
	if need&1 != 0 {
		t.addGrad(n.in[0], t.sumTo(q, n.in[0]))
	} else {
		t.release(q)
	}
}

// extremumVJP sends the gradient to the operand that won, half to each on a tie.
func extremumVJP(t *Tape, n *Node, need uint8) {
	g, wins := n.out.grad, OpGt
	if n.op == OpMinimum {
		wins = OpLt
	}
	for i := range 2 {
		if need&(1<<i) == 0 {
			continue
		}
		x, y := n.in[i], n.in[1-i]
		w := t.indicator(wins, g, x, y)
		tie := t.indicator(OpEq, g, x, y)
		t.affine(tie, tie, 0.5, 0)
		t.accumulate(w, tie, 1)
		t.binary(OpMul, tie, g, w)
		t.release(w)
		t.addGrad(n.in[i], t.sumTo(tie, x))
	}
}

// indicator returns 1 where the comparison holds and 0 elsewhere, in g's type and shape.
func (t *Tape) indicator(op Op, g, x, y *header) *header {
	b := t.newTensor(Bool, g.dims[:g.ndim]...)
	t.binary(op, b, x, y)
	f := t.newLike(g)
	t.cast(f, b)
	t.release(b)
	return f
}

// x^y has the gradients g·y·x^(y−1) for x (0 if y is 0) and g·x^y·ln x for y (0 if x is 0).
func powVJP(t *Tape, n *Node, need uint8) {
	g, x, y := n.out.grad, n.in[0], n.in[1]
	if need&1 != 0 {
		e := t.newLike(y)
		t.accumulate(e, y, 0)
		t.affine(e, e, 1, -1)
		d := t.product(OpPow, g, x, e)
		t.binary(OpMul, d, d, y)
		t.release(e)
		t.zeroWhereZero(d, y)
		t.binary(OpMul, d, d, g)
		t.addGrad(x, t.sumTo(d, x))
	}
	if need&2 != 0 {
		l := t.newLike(x)
		t.accumulate(l, x, 0)
		t.unary(OpLog, l, l)
		d := t.product(OpMul, g, n.out, l)
		t.release(l)
		t.zeroWhereZero(d, x)
		t.binary(OpMul, d, d, g)
		t.addGrad(y, t.sumTo(d, y))
	}
}

// zeroWhereZero sets d to 0 where x, after broadcasting, is 0.
func (t *Tape) zeroWhereZero(d, x *header) {
	zero, isZero := t.full(d, 0), t.newTensor(Bool, d.dims[:d.ndim]...)
	t.binary(OpEq, isZero, x, zero)
	t.where(d, isZero, zero, d)
	t.release(zero)
	t.release(isZero)
}

func whereVJP(t *Tape, n *Node, need uint8) {
	g := n.out.grad
	for i := 1; i <= 2; i++ {
		if need&(1<<i) == 0 {
			continue
		}
		d := t.full(g, 0)
		if i == 1 {
			t.where(d, n.in[0], g, d)
		} else {
			t.where(d, n.in[0], d, g)
		}
		t.addGrad(n.in[i], d)
	}
}

// inPlace returns the gradient g of n's output, and d for the gradient of its only input. They have the same memory if nothing else refers
// to it.
func (t *Tape) inPlace(n *Node) (g, d *header) {
	g = n.out.grad
	if t.keepAll || g.shared() {
		return g, t.newLike(n.out)
	}
	n.out.grad = nil
	return g, g
}

func affineVJP(t *Tape, n *Node, _ uint8) {
	g, d := t.inPlace(n)
	t.affine(d, g, n.F[0], 0)
	t.addGrad(n.in[0], d)
}

func negVJP(t *Tape, n *Node, _ uint8) {
	g, d := t.inPlace(n)
	t.unary(OpNeg, d, g)
	t.addGrad(n.in[0], d)
}

// unaryVJP returns the rule dx = grad(g, s), where s is input 0 or, for saved = −1, the output.
func unaryVJP(grad Op, saved int) VJP {
	return func(t *Tape, n *Node, _ uint8) {
		s := n.out
		if saved == 0 {
			s = n.in[0]
		}
		g, d := t.inPlace(n)
		if grad == OpMul || grad == OpDiv {
			t.binary(grad, d, g, s)
		} else {
			t.unary(grad, d, g, s)
		}
		t.addGrad(n.in[0], d)
	}
}

func passVJP(t *Tape, n *Node, _ uint8) { t.addGrad(n.in[0], t.alias(n.out.grad)) }
