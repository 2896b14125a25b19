package tensor

import (
	"math"

	"github.com/ringo-ml/ringo/layout"
)

// portion is elements first to end-1 of a whole: of this rank's rows (or positions), which were summed and reach the loss, with a factor if
// that is known; or of this rank's part of the features, which a Slice took.
type portion struct {
	portionOf
	first, end int
	factor     float64
	site       uint64 // the callSite of what chose them
}

// chosen is a row that an index picked which this rank made of values of its own rows, such as those of TopK.
type chosen struct {
	order, row int // the order is that of a Loose Spot
	site       uint64
}

// portionOf is what portions should be together.
type portionOf struct {
	of       batch
	seq      bool
	chosen   bool
	features *header // the tensor that was sliced
	n        int
}

// noteFeatures notes the features that a Slice took of this rank's.
func (t *Tape) noteFeatures(n *Node) {
	h, d := n.in[0], n.I[0]
	if h.at.Cut() == 1<<d {
		t.portions = append(t.portions, portion{portionOf{features: h, n: h.dims[d]}, n.I[1], n.I[1] + n.out.dims[d], 0, 0})
	}
}

// notePortions notes the rows of a node's inputs if a Slice left a portion of this rank's, and the node sums them.
func (t *Tape) notePortions(n *Node) {
	if n.op == OpSlice {
		t.noteFeatures(n)
	}
	for i, h := range n.in {
		if n.need>>i&1 == 0 || h.at.Of == 0 {
			continue
		}
		for _, seq := range [2]bool{false, true} {
			s, out, b := h.at.Rows(), n.out.at.Rows(), t.batchAt(h.at)
			of := portionOf{of: *b, seq: seq, n: b.N}
			if seq {
				s, out, of.n = h.at.Seq(), n.out.at.Seq(), b.Positions
			}
			if s.Mode() == layout.Exact || out.Dims() != 0 || h.variesOver(b, seq)&n.out.ty.On(Partial) == 0 || b.Mixed {
				continue // of several batches, it may be all of one
			}
			if s.Mode() == layout.Portion {
				t.portions = append(t.portions, portion{of, s.Outer(), s.Outer() + h.steps(s), t.factor, 0})
				continue
			}
			of.chosen = true
			for _, c := range t.chosen {
				if c.order == s.Outer() {
					t.portions = append(t.portions, portion{of, c.row, c.row + 1, t.factor, c.site})
				}
			}
		}
	}
}

// steps returns the number of elements in the dimensions of s, taken together.
func (h *header) steps(s layout.Spot) int {
	n := 1
	for d := range int(h.ndim) {
		if s.Dims()>>d&1 != 0 {
			n *= h.dims[d]
		}
	}
	return n
}

// mustCoverPortions panics with a *Failure unless the portions that reach the loss are together all of this rank's rows, or features, each
// as often as the others. On another number of ranks, the first ones of a rank are others. Where a rank chose, it may have all that belongs
// together: the next Backward notes that.
func (t *Tape) mustCoverPortions() {
	list := t.portions
	if t.portions = t.portions[:0]; len(list) == 0 {
		return
	}
	type edge struct{ kind, at int }
	var kinds []*portion // one of each that belong together
	balance := map[edge]int{}
	kind := func(p *portion) int {
		for i, q := range kinds {
			if q.portionOf == p.portionOf && math.Abs(q.factor-p.factor) <= 1e-6*math.Abs(p.factor) {
				return i
			}
		}
		kinds = append(kinds, p)
		return len(kinds) - 1
	}
	for i := range list {
		p := &list[i]
		k := kind(p)
		balance[edge{k, p.first}]++
		balance[edge{k, p.end}]--
	}
	for i := range list {
		p := &list[i]
		k := kind(p)
		for _, at := range [2]int{p.first, p.end} {
			switch {
			case at == 0 || at == p.n || balance[edge{k, at}] == 0:
			case p.chosen:
				t.choice = p.site
			default:
				p.fail()
			}
		}
	}
}

func (p *portion) fail() {
	what, done, line := "rows", "summed and reach the loss", "sum all, times weights that belong to them (Tensor.WithRows)"
	switch {
	case p.features != nil:
		what, done, line = "features", "sliced and reach the loss", "gather them first (autograd.AllGather), or do it on whole heads"
	case p.seq:
		what = "positions"
	}
	fail("Backward", nil, "%s %d to %d of this rank's %d were %s, and others did not, or not as often, or with another weight: on another "+
		"number of ranks these are others; %s", what, p.first, p.end-1, p.n, done, line)
}
