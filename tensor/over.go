package tensor

// The gradient of logits is as large as they are, and they are the largest tensor of a language model's step. So Backward writes it over
// them where nobody reads them any more. Where a device computes a loss and its gradient in one pass (ops.OpCrossEntropyBoth), the loss is
// computed as late as that: in Backward, or when somebody reads it before.

// GradOver returns memory for the gradient of n's input i: that of the input if nobody reads it any more. AddGradOver ends its use.
func (t *Tape) GradOver(n *Node, i int) (d Tensor, over bool) {
	x := n.in[i]
	if !t.readsLast(x) {
		return t.newLike(x).tensor(), false
	}
	h := t.alias(x)
	h.ty = Types{}
	return h.tensor(), true
}

// AddGradOver adds the gradient d, of GradOver, to that of n's input i, which is invalid from now on if d is in its memory.
func (t *Tape) AddGradOver(n *Node, i int, d Tensor, over bool) {
	if over {
		t.release(n.in[i]) // so d owns the memory
	}
	t.addGrad(n.in[i], d.hdr())
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

// Later puts off the output of n until somebody reads it: then OpSpec.Compute makes it. The rule may do so before. Until then the output's
// storage has no pointer, so every reader asks waitArrival for it.
func (t *Tape) Later(n *Node) {
	c, s := n.call, n.out.st
	if c == nil {
		c = t.ctx(nil, nil)
	}
	n.later = true
	c.coming.c, c.coming.later, c.coming.ptr = c, n, s.ptr
	s.coming, s.ptr = &c.coming, nil
}

// Now ends what Tape.Later began. It returns the memory of n's output, to be written and released, or none if nobody can read it any more.
func (t *Tape) Now(n *Node) Tensor {
	s := n.arrived()
	if s.refs == 0 {
		return Tensor{}
	}
	out := t.blankHeader()
	out.sizeAs(n.out)
	out.st = s
	s.refs++
	return out.tensor()
}

// arrived gives the pointer back to the output of n, which is made now. It returns its storage.
func (n *Node) arrived() *storage {
	s := &n.out.own
	n.later, s.coming.later = false, nil
	if s.refs > 0 { // somebody may read it
		s.markArrived()
	}
	return s
}

// compute makes the output of n, which was put off.
func (t *Tape) compute(n *Node) {
	args := t.a // of the launch that reads it
	t.a = Args{}
	ops[n.op].Compute(t, n)
	t.a = args
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
	n := c.coming.later
	if n == nil {
		return Tensor{}
	}
	n.arrived()
	return n.out.tensor()
}

// computeLate is OpSpec.Compute of a Late Function's call.
func computeLate(_ *Tape, n *Node) {
	n.arrived()
	n.call.compute(n.out)
}

// compute calls Compute of c's Function.
func (c *Ctx) compute(y *header) {
	t := c.t
	quiet, mark := t.quiet, t.nh
	t.quiet = true
	t.open++
	c.f.(Late).Compute(c, y.tensor())
	t.open--
	t.quiet = quiet
	t.sweep(mark, t.nh, nil, c)
}
