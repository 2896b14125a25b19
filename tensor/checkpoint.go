package tensor

// Scope runs fn, and then frees all that fn made and no gradient rule will read, except the result. Handles made inside are invalid
// afterwards. On a NoGrad tape all but the result is freed.
func (t *Tape) Scope(fn func(...Tensor) Tensor, in ...Tensor) Tensor {
	mark, node := t.nh, t.nn
	y := t.arg(t.call(fn, in))
	for i := node; i < t.nn; i++ {
		t.node(i).markSaved()
	}
	t.sweep(mark, t.nh, y, nil)
	return y.tensor()
}

// call runs fn on a copy of in that lives on the tape, so that a caller's variadic list stays on its stack.
func (t *Tape) call(fn func(...Tensor) Tensor, in []Tensor) Tensor {
	c := t.ctx(nil, in)
	return fn(c.in...)
}

// reads reports whether the gradient rule reads input i.
func (n *Node) reads(i int) bool {
	if n.op == OpApply {
		for _, h := range n.call.saved {
			if h.base == n.in[i].base {
				return true
			}
		}
		return false
	}
	return ops[n.op].Saves&(1<<i) != 0
}

func (n *Node) markSaved() {
	if n.op == OpApply {
		for _, h := range n.call.saved {
			h.saved = true
		}
		for _, h := range n.call.outs {
			h.saved = true
		}
	}
	saves := ops[n.op].Saves
	for i, h := range n.in {
		if h != nil && saves&(1<<i) != 0 {
			h.saved = true
		}
	}
	if saves&SaveOut != 0 {
		n.out.saved = true
	}
	for _, h := range n.aux {
		if h != nil {
			h.saved = true
		}
	}
}

// Once returns fn(), a tensor without a gradient, for example a choice that depends on data. Inside a function of Checkpoint the result is
// kept: when the function runs again, Once returns the kept tensor and does not call fn.
func (t *Tape) Once(fn func() Tensor) Tensor {
	var x *header
	if c := t.replayed; c == nil {
		x = t.arg(fn())
	} else if c.once < len(c.saved) {
		x = c.saved[c.once]
		c.once++
	} else {
		fail("Once", nil, "the function of a Checkpoint asks for more when it is run again")
	}
	if x.needs {
		fail("Once", these(x), "has a gradient, which would be lost: Detach it")
	}
	if c := t.keeper; c != nil {
		kept := t.alias(x)
		kept.saved, kept.local = true, true
		c.saved = append(c.saved, kept)
	}
	return x.tensor()
}

// Checkpoint runs fn and keeps only its result, and the tensors of Once. Backward runs fn again. fn must do the same each time; the first
// steps, and others that ranks compare, compare its results in host memory. Pass the step tensors that fn reads as in (at most 8): others
// may be freed before it runs again. (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".)
func (t *Tape) Checkpoint(fn func(...Tensor) Tensor, in ...Tensor) Tensor {
	if !t.record || !t.records() {
		return t.Scope(fn, in...)
	}
	hs := t.inputs("checkpoint", in)
	var need uint8
	for i, h := range hs {
		if h != nil && h.needs {
			h.use()
			need |= 1 << i
		}
	}
	mark, seeds, c, keeper := t.nh, t.seeds, t.ctx(nil, in), t.keeper
	t.record, t.keeper = false, c
	t.open++
	y := t.arg(fn(c.in...))
	t.open--
	t.record, t.keeper = true, keeper
	if !t.madeSince(mark, y) { // y is one of in: there is nothing to run again
		return y.tensor()
	}
	t.sweep(mark, t.nh, y, nil)
	if y.needs {
		n := t.newNode()
		n.op, n.need, n.out, n.in, n.fn, n.call = OpCheckpoint, need, y, hs, fn, c
		n.I, c.tokens = pack(t.rows), t.tokens
		if t.compares() && t.Recording() == nil {
			c.sum = checksum(y)
		}
		n.seeds = t.seeds > seeds
	}
	return y.tensor()
}

// checkpointVJP runs the function again, on new headers for the inputs, and differentiates what it recorded. Parameters among the inputs
// keep their headers: the rules inside write to their gradients.
func checkpointVJP(t *Tape, n *Node, need uint8) {
	nodes, mark := t.nn, t.nh
	c := t.ctx(nil, nil)
	for _, h := range n.in {
		x := h
		if h != nil && !h.isLeaf() {
			x = t.alias(h)
			x.needs = h.needs
			x.derive(h)
		}
		c.in = append(c.in, x.maybe())
	}
	y := t.rerun(n, c)
	y.grad, n.out.grad = n.out.grad, nil
	t.moveFactor(y, n.out)
	t.run(nodes)
	t.nn = nodes
	for i, x := range c.in {
		if x.IsZero() || x.h.isLeaf() {
			continue
		}
		t.moveFactor(n.in[i], x.h)
		t.settleGrad(x.h)
		if g := x.h.grad; g != nil {
			x.h.grad = nil
			t.addGrad(n.in[i], g)
		}
	}
	for i := mark; i < t.nh; i++ {
		t.header(i).saved = false
	}
	t.sweep(mark, t.nh, nil, nil)
}

// rerun runs a checkpointed function for the second time, with the random keys of the first run.
func (t *Tape) rerun(n *Node, c *Ctx) *header {
	recompute, rows, tokens, replayed := t.recompute, t.rows, t.tokens, t.replayed
	t.recompute, t.rows, t.tokens, t.replayed = true, unpack(n.I), n.call.tokens, n.call
	y := t.arg(n.fn(c.in...))
	t.recompute, t.rows, t.tokens, t.replayed = recompute, rows, tokens, replayed
	if y.dtype != n.out.dtype || !y.alike(n.out) || !y.needs || n.call.once != len(n.call.saved) {
		fail("checkpoint", these(n.out, y), "the function did something else when it was run again")
	}
	if n.call.sum != 0 && n.call.sum != checksum(y) {
		fail("checkpoint", these(n.out), "the function returned other values when it was run again, so gradients would be wrong: let "+
			"Tape.Once keep what changes from call to call, such as a counter, the host's random numbers or running statistics")
	}
	return y
}
