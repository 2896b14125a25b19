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
