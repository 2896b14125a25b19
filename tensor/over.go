package tensor

// The gradient of logits is as large as they are, and they are the largest tensor of a language model's step. So Backward writes it over
// them where nobody reads them any more. Where a device has OpCrossEntropyBoth, which computes a loss and its gradient in one pass, the
// loss is computed as late as that: in Backward, or when somebody reads it before.

// gradOver returns memory for a gradient of x, an input of the node that is differentiated: that of x if nobody reads x any more.
// addGradOver ends its use.
func (t *Tape) gradOver(x *header) (d *header, over bool) {
	if !t.readsLast(x) {
		return t.newLike(x), false
	}
	d = t.alias(x)
	d.ty = Types{}
	return d, true
}

// addGradOver adds the gradient d, of gradOver, to that of x, which is invalid from now on if d is in its memory.
func (t *Tape) addGradOver(x, d *header, over bool) {
	if over {
		t.release(x) // so d owns the memory
	}
	t.addGrad(x, d)
}

// readsLast reports whether the node that is differentiated is the last one to read x: the node before it made x in memory of its own, and
// its rule does not read it; no other operation, view, collective or caller of Keep does.
func (t *Tape) readsLast(x *header) bool {
	if t.at == 0 || t.keepAll || x.kept || x.uses != 1 || x.st != &x.own || x.shared() || x.st.busy() {
		return false
	}
	by := t.node(t.at - 1)
	return by.out == x && by.op != OpApply && by.op != OpCheckpoint && ops[by.op].Saves&SaveOut == 0
}

// Late is a Function whose output is computed when somebody reads it, or else in Backward, which may then compute it together with the
// gradients. Forward only makes it, with Ctx.New, and saves what Compute and Backward read. Read such a loss after Backward.
type Late interface {
	Function
	// Compute writes y, which Forward made. What it saves comes behind what Forward saved.
	Compute(c *Ctx, y Tensor)
}

// Result returns, in Backward of a Late Function, the output if it is still to be computed: Backward writes it. Else it returns none.
func (c *Ctx) Result() Tensor {
	n := c.coming.loss
	if n == nil {
		return Tensor{}
	}
	n.arrived()
	return n.out.tensor()
}

// computeLater puts off the loss of n, whose rows get this memory.
func (t *Tape) computeLater(n *Node, rows *header) {
	n.aux[1] = rows
	t.later(t.ctx(nil, nil), n)
}

// later puts off the output of n. Until then its storage has no pointer, so every reader asks waitArrival for it.
func (t *Tape) later(c *Ctx, n *Node) {
	s := n.out.st
	n.I[1] = 1
	c.coming.c, c.coming.loss, c.coming.ptr = c, n, s.ptr
	s.coming, s.ptr = &c.coming, nil
}

// arrived gives the pointer back to the output of n, which is computed now. It returns its storage.
func (n *Node) arrived() *storage {
	s := &n.out.own
	n.I[1], s.coming.loss = 0, nil
	if s.refs > 0 { // somebody may read it
		s.markArrived()
	}
	return s
}

// compute calls Compute of c's Function.
func (t *Tape) compute(c *Ctx, y *header) {
	args, quiet, mark := t.a, t.quiet, t.nh // of the launch that reads y
	t.a, t.quiet = Args{}, true
	t.open++
	c.f.(Late).Compute(c, y.tensor())
	t.open--
	t.a, t.quiet = args, quiet
	t.sweep(mark, t.nh, nil, c)
}

// computeLoss computes the loss of n, which was put off. If grad is not nil, it becomes the gradient of the logits where that of the loss
// is 1.
func (t *Tape) computeLoss(n *Node, grad *header) {
	if n.op == OpApply {
		n.arrived()
		t.compute(n.call, n.out)
		return
	}
	args := t.a // of the launch that reads the loss
	rows, count := n.aux[1], n.F[0]
	n.aux[1] = nil
	s := n.arrived()
	t.crossEntropy(rows, n.aux[0], grad, n.in[0], n.in[1], n.F[1], int64(n.I[0]), count)
	if grad != nil {
		count = 1 // the kernel divided
	}
	if s.refs > 0 {
		out := t.blankHeader()
		out.sizeAs(n.out)
		out.st = s
		s.refs++
		t.meanTo(out, rows, count)
		t.release(out)
	} else {
		t.release(rows)
	}
	t.a = args
}

// settleLoss computes the loss of a node that Backward did not reach, if somebody may still read it: the logits are freed next.
func (t *Tape) settleLoss(n *Node) {
	if n.I[1] != 0 && (n.out.kept || n.out.own.refs > 1) {
		t.computeLoss(n, nil)
	}
}
