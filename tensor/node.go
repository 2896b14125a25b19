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
	const chunk = 1024
	if n > chunk {
		return make([]*header, n)
	}
	if t.np%chunk+n > chunk {
		t.np = (t.np/chunk + 1) * chunk
	}
	i := t.np / chunk
	if i == len(t.ptrs) {
		t.ptrs = append(t.ptrs, make([]*header, chunk))
	}
	j := t.np % chunk
	t.np += n
	return t.ptrs[i][j : j+n : j+n]
}

// recording reports whether operations are recorded now.
func (t *Tape) recording() bool { return !(t.noGrad || t.quiet || t.inBackward && !t.recompute) }

// rec records that out was computed by op from in, and returns the node, or nil when no gradient flows through it.
func (t *Tape) rec(op Op, out *header, in ...*header) *Node {
	n := t.recNode(op, out, in)
	if n != nil {
		n.in = t.operands(len(in))
		for i := range n.in { // a call of copy would be slower for so few
			n.in[i] = in[i]
		}
	}
	return n
}

// recNode is rec of a node that gets its inputs from the caller, who has a list of them that lives until Reset.
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
	o := &ops[op]
	placed, index := op == OpBroadcast, o.Index
	for i, h := range in {
		if h == nil {
			continue
		}
		if h.base != nil && !t.recompute {
			h.base.registerOwner()
		}
		placed = placed || h.at != (place{})
		if index == 0 || index>>i&1 == 0 {
			s.add(h)
		} else {
			s.addIndex(h)
		}
		if !h.needs {
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
		if out.ty = s.Types(); s.Suspects() != 0 {
			op.mustFit(out, in, &s)
		}
		if placed && o.Rows != RowsByCaller || o.Rows == RowsSum {
			t.locate(op, out, in)
		}
	}
	if need == 0 {
		if old != 0 && out.dtype.IsFloat() {
			out.uses = spent
		}
		return nil
	}
	out.needs = true
	if !t.record {
		return nil
	}
	n := t.newNode()
	n.op, n.need, n.leaf, n.out = op, need, leaf, out
	n.addSpent(old)
	return n
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
	list := t.inputs(op.String(), in)
	n := t.recNode(op, h, list)
	if n != nil {
		n.in = list
	}
	return n
}
