package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// OwnRows is the Op of a Factor of something that is made of several of this rank's rows together, such as the largest of them, and not as
// a sum: behind an AsPart (Part), or of rows that were chosen by indices. On another number of ranks, other rows are together.
const OwnRows = "several of a rank's rows"

// followOwn looks for such an operation behind AsPart: n is one of those between it and the rows.
func (t *Tape) followOwn(n *Node, f Factor) {
	switch {
	case n.op == OpApply || n.op == OpCheckpoint: // what they do is not known
		return
	case t.mixesRows(n, &f):
		t.noteFactor(Factor{Site: kernel.Key(f.part, 1), Value: 1, Op: OwnRows, Own: true, Part: true, from: f.part})
		return
	}
	for i, h := range n.in {
		if n.need>>i&1 != 0 && !h.isLeaf() && h.ty.On(Own) != 0 {
			t.multiply(h, Factor{part: f.part, some: f.some})
		}
	}
}

// mixesRows reports whether n, whose output is this rank's own, makes it of several rows, but for a sum of all alike. What the host chose
// of the rows is a tensor with rows.
func (t *Tape) mixesRows(n *Node, f *Factor) bool {
	if ops[n.op].Rows == RowsPicked { // in the order of a Sort, all are there
		x, idx := n.in[0], n.in[1]
		return idx.ty.On(Own) != 0 && (f.some || !idx.st.dev.Host() || !t.picksAll(idx, x.dims[n.I[0]]))
	}
	rows, made, own := n.out.at.Dims() != 0, false, 0
	for _, h := range n.in {
		if h != nil && h.dtype.IsFloat() {
			made = made || h.at.Dims() == 0 && h.ty.On(Own) != 0
			rows = rows || h.at.Dims() != 0
			own += b2i(h.ty.On(Own) != 0)
		}
	}
	switch {
	case rows && n.op == OpSum:
		return false
	case rows: // each row by itself, or with what is made of all
		return made || n.out.at.Dims() == 0
	case n.op == OpSlice || n.op == OpConcat || (n.op == OpMul || n.op == OpDiv && n.in[1].ty.On(Own) == 0) && own == 1:
		f.some = true
		return false
	}
	return !addsUp(n.op) && n.op != OpAffine && n.op != OpPermute && n.op != OpBroadcast
}
