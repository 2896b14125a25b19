package tensor

// Node is one recorded operation.
type Node struct {
	op         Op
	need, leaf uint8 // bit masks of inputs: those that need a gradient, those that are parameters
	deferred   bool  // its weight gradients are put off
	keptInputs uint8 // inputs that it keeps until then
	seeds      bool  // a Checkpoint with a WithAux inside: it has a gradient even if its output has none
	later      bool  // its output is put off (see Tape.Later)
	spent      bool  // a Function's call of which an input is spent
	inLoss     bool  // see Tape.markLoss
	in         []*header
	out        *header
	aux        [2]*header // further tensors that the rule reads
	I          [8]int     // attributes
	F          [3]float64
	Key        uint64 // of its random numbers
	call       *Ctx
	fn         func(...Tensor) Tensor
}

// In returns input i, or none if it is absent.
func (n *Node) In(i int) Tensor { return n.in[i].maybe() }

// Out returns the output.
func (n *Node) Out() Tensor { return n.out.tensor() }

// Grad returns the gradient of the output.
func (n *Node) Grad() Tensor { return n.out.grad.tensor() }

// Needs returns the bit mask of the inputs that need a gradient, now or later: see Tape.RunDeferred.
func (n *Node) Needs() uint8 { return n.need }

// Done says that the rule computed all gradients that are needed, also those that it was not asked for yet.
func (n *Node) Done() { n.need = 0 }

func (t *Tape) node(i int) *Node { return &t.nodes[uint(i)/slabLen][uint(i)%slabLen] }

// operands returns a list of n headers that lives until Reset.
func (t *Tape) operands(n int) []*header {
	for n > len(t.free) {
		if t.np == len(t.ptrs) {
			t.ptrs = append(t.ptrs, make([]*header, max(n, 1024)))
		}
		t.free, t.np = t.ptrs[t.np], t.np+1
	}
	list := t.free[:n:n]
	t.free = t.free[n:]
	return list
}

// records reports whether operations are recorded now.
func (t *Tape) records() bool { return !(t.noGrad || t.quiet || t.inBackward && !t.recompute) }

// rec records that out was computed by op from in, and returns the node, or nil when no gradient flows through it.
func (t *Tape) rec(op Op, out *header, in ...*header) *Node {
	list := t.operands(len(in))
	for i := range list { // a call of copy would be slower for so few
		list[i] = in[i]
	}
	return t.recNode(op, out, list)
}

// recNode is rec with a list of inputs that lives until Reset.
func (t *Tape) recNode(op Op, out *header, in []*header) *Node {
	if t.poller != nil {
		t.poller.Poll()
	}
	if !t.typing() {
		return nil
	}
	if t.noGrad {
		t.typeOnly(op, out, in)
		return nil
	}
	var need, leaf, old uint8
	var s inputAxes
	var first *header // the input of those that do not choose elements; s has those that differ from it
	o := &ops[op]
	placed, mixed, index := op == OpBroadcast, o.Index != 0, o.Index
	for i, h := range in {
		if h == nil {
			continue
		}
		if b := h.base; b != nil && !b.hooked && !t.recompute {
			b.registerOwner()
		}
		placed = placed || h.at != (place{})
		switch {
		case index != 0 && index>>i&1 != 0:
			s.addIndex(h)
		case first == nil:
			first = h
		case h.ty != first.ty || h.needs != first.needs:
			mixed = true
			s.add(h)
		}
		if !h.needs || o.Const {
			if h.uses == spent {
				old |= 1 << i
			}
			continue
		}
		need |= 1 << i
		h.use()
		if h.isLeaf() {
			leaf |= 1 << i
			if !t.recompute {
				h.base.pending++
			}
		}
	}
	if op != OpApply {
		if mixed || need == 0 || first.ty.On(Partial) != 0 {
			op.setTypes(out, first, in, &s)
		} else { // all inputs are alike
			out.ty = first.ty
		}
		if placed && o.Rows != RowsByCaller || o.Rows == RowsSum {
			t.locate(op, out, in)
		}
	}
	if need == 0 && old != 0 && out.dtype.IsFloat() {
		out.uses = spent
	}
	if out.needs = out.needs || need != 0; need == 0 || !t.record {
		return nil
	}
	n := t.newNode()
	n.op, n.need, n.leaf, n.in, n.out = op, need, leaf, in, out
	n.addSpent(old)
	return n
}

// setTypes sets the types of an output whose inputs are first, if not nil, and those that s has.
func (op Op) setTypes(out, first *header, in []*header, s *inputAxes) {
	if first != nil {
		s.add(first)
	}
	if out.ty = s.Types(); s.Suspects() != 0 {
		op.mustFit(nil, out, in, s)
	}
}

// use counts that a recorded operation reads h.
func (h *header) use() { h.uses = min(h.uses+1, 2) }

func (t *Tape) newNode() *Node {
	if uint(t.nn)/slabLen == uint(len(t.nodes)) {
		t.nodes = append(t.nodes, new([slabLen]Node))
	}
	n := t.node(t.nn)
	t.nn++
	*n = Node{}
	return n
}

// maxInputs is the number of inputs of a node: need and leaf have a bit for each.
const maxInputs = 8

// inputs returns the headers of xs, in a list that lives until Reset; nil for none.
func (t *Tape) inputs(op string, xs []Tensor) []*header {
	if len(xs) > maxInputs {
		fail(op, nil, "%d inputs, at most %d", len(xs), maxInputs)
	}
	hs := t.operands(len(xs))
	for i, x := range xs {
		hs[i] = t.maybeArg(x)
	}
	return hs
}

// Record records an operation of another package (see Register): op computed out, made by New, from at most 8 inputs; absent ones are zero
// Tensors. It returns the node, whose I, F and Key the caller may set, or nil if no gradient is needed.
func (t *Tape) Record(op Op, out Tensor, in ...Tensor) *Node {
	h := out.hdr()
	if h.tape != t || h.needs {
		fail(op.String(), these(h), "the output must be a new tensor of the tape")
	}
	return t.recNode(op, h, t.inputs(op.String(), in))
}
