package tensor

func init() {
	define(OpSecond, OpSpec{Name: "second", VJP: secondVJP})
}

// Second returns y, a second result of the operation that recorded out just before, as an output of its own. When the rule of that
// operation is called, the gradient of y is Saved(1), or none.
func (t *Tape) Second(y, out Tensor) Tensor {
	h := t.alias(y.hdr())
	t.rec(OpSecond, h, out.hdr())
	return h.tensor()
}

// secondVJP stores the gradient for the node of the operation. That node was recorded before this one, so it is differentiated next. It
// must have a gradient then, though this may be 0.
func secondVJP(t *Tape, n *Node, _ uint8) {
	of := t.node(t.at - 1)
	of.aux[1], n.out.grad = n.out.grad, nil
	if of.out.grad == nil && of.out.more == nil {
		t.addGrad(of.out, t.full(of.out, 0))
	}
}
