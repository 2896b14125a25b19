package tensor

import (
	"math"

	"github.com/ringo-ml/ringo/layout"
)

// portion is rows (or positions) first to end-1 of this rank's, which were summed and reach the loss, with a factor if that is known.
type portion struct {
	of         batch
	seq        bool
	first, end int
	factor     float64
}

// notePortions notes the rows of a node's inputs if a Slice left a portion of this rank's, and the node sums them.
func (t *Tape) notePortions(n *Node) {
	for i, h := range n.in {
		if n.need>>i&1 == 0 || h.at.Of == 0 {
			continue
		}
		for _, seq := range [2]bool{false, true} {
			s, out, b := h.at.Rows(), n.out.at.Rows(), t.batchAt(h.at)
			if seq {
				s, out = h.at.Seq(), n.out.at.Seq()
			}
			axes := h.variesOver(b, seq) & n.out.ty.On(Partial)
			if s.Mode() == layout.Portion && out.Dims() == 0 && axes != 0 && !b.Mixed { // of several batches, it may be all of one
				t.portions = append(t.portions, portion{*b, seq, s.Outer(), s.Outer() + h.steps(s), t.factor})
			}
		}
	}
}

// steps returns the number of elements in the dimensions of s, taken together.
func (h *header) steps(s layout.Spot) int {
	n := 1
	for d := range int(h.rank) {
		if s.Dims()>>d&1 != 0 {
			n *= h.dims[d]
		}
	}
	return n
}

// mustCoverPortions panics with a *Failure unless the portions that reach the loss are together all of this rank's rows, each as often as
// the others. On another number of ranks, the first rows of a rank are others.
func (t *Tape) mustCoverPortions() {
	list := t.portions
	t.portions = t.portions[:0]
	for _, p := range list {
		all, what := p.of.N, "rows"
		if p.seq {
			all, what = p.of.Positions, "positions"
		}
		for _, at := range [2]int{p.first, p.end} {
			balance := 0
			for _, q := range list {
				if q.of == p.of && q.seq == p.seq && math.Abs(q.factor-p.factor) <= 1e-6*math.Abs(p.factor) {
					if q.first == at {
						balance++
					}
					if q.end == at {
						balance--
					}
				}
			}
			if at != 0 && at != all && balance != 0 {
				fail("Backward", nil, "%s %d to %d of this rank's %d were summed and reach the loss, and others did not, or not as often, or with another "+
					"weight: on another number of ranks these are others of the batch; sum all, times weights that belong to them (Tensor.WithRows)",
					what, p.first, p.end-1, all)
			}
		}
	}
}
