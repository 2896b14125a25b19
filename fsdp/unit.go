package fsdp

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/groups"
	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/fsdp/internal/pool"
	"github.com/ringo-ml/ringo/fsdp/internal/zeropp"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// piece is a parameter in its unit.
type piece struct {
	p           *tensor.Param
	u           *Unit
	in          *section
	value       tensor.Tensor  // whole, in the parameter's shape
	off         int            // of its first element in the unit
	lo, hi      int            // its elements that this rank owns
	grad        tensor.Tensor  // whole, in the parameter's shape; none if it was frozen at Attach
	gradPart    tensor.Tensor  // elements lo to hi of the gradient
	hasGrad     bool           // has a gradient in this Backward, or with OncePerStep in an earlier one of the step
	stepHasGrad bool           // got one in this step
	after       tensor.Pending // must be over before grad is read
	noted       bool           // sum is that of the values that were gathered: frozen, of a unit that stays
	sum         uint32
	slot        int // in Sharding.usage
}

// section is a run of a unit's elements that is cut over the ranks by itself: those with gradients, or the frozen ones. So
// each rank has its share of the optimizer's state, and no rank all of it.
type section struct {
	which  order.Sections
	off, n int
	counts []int // elements of each rank
	lo, hi int   // elements of the unit that this rank owns

	local     tensor.Tensor // what the optimizer updates: elements lo to hi
	flat      tensor.Tensor // all of it, in Unit.flat; the values of parameters are parts of it
	flatShard tensor.Tensor // elements lo to hi of Unit.flat
	stays     tensor.Ptr    // memory of flat in a unit that stays, unless what the optimizer updates is the whole
	narrow    tensor.Tensor // with Config.Offload: local in the type of flat, if that is another one
	codes     zeropp.Gather // with Config.Weights
	gather    dist.Work
	secondary *zeropp.Copy // of the host, which is as old as order.Order.Fresh says
}

// Unit is a set of parameters that are gathered and reduced together.
type Unit struct {
	index           int
	name            string
	keep            bool          // values stay until the optimizer changes them
	over            *groups.Ranks // that share it
	compute, reduce tensor.DType  // of values in use, and of gradients
	pieces          []*piece
	n               int        // elements
	sections        [2]section // trained, frozen

	flat tensor.Tensor // all elements, in the type they are used in; no memory unless gathered

	grads       tensor.Tensor // of all trained elements; stages 2 and 3: no memory but during Backward
	gradScratch tensor.Tensor // this rank's part of grads: where a reduce-scatter arrives, if gradShard has those of earlier microbatches
	gradShard   tensor.Tensor // the sum over ranks and microbatches of this part; in stage 1 gradScratch itself
	offloaded   tensor.Tensor // gradShard where the optimizer reads it: with Config.Offload in host memory
	gradPool    *pool.Pool    // memory of grads; a kept unit's own: it may need its gradients throughout Backward
	accumulated bool          // gradShard has the gradients of earlier microbatches
	reducing    dist.Work
	hops        *zeropp.Reduction // with Config.Grads
}

// trained is the section of what had gradients at Attach. It is the first one.
func (u *Unit) trained() *section { return &u.sections[0] }

// plan places the unit's parameters in it, those with gradients first, and cuts it.
func (u *Unit) plan() {
	all := u.pieces
	u.pieces = nil
	for i := range u.sections {
		sec := &u.sections[i]
		sec.which, sec.off = order.Trained<<i, u.n
		for _, pc := range all {
			if pc.p.Frozen() == (i == 1) {
				pc.in, pc.off = sec, u.n
				u.pieces, u.n = append(u.pieces, pc), u.n+pc.p.Len()
			}
		}
		sec.n = u.n - sec.off
		rank, ranks := u.over.Shard.Rank(), u.over.Shard.Size()
		sec.counts = layout.Shares(make([]int, ranks), sec.n)
		lo, hi := layout.Share(sec.n, rank, ranks)
		sec.lo, sec.hi = sec.off+lo, sec.off+hi
	}
	for _, pc := range u.pieces {
		pc.lo = min(max(pc.in.lo-pc.off, 0), pc.p.Len())
		pc.hi = min(max(pc.in.hi-pc.off, pc.lo), pc.p.Len())
	}
}

// setName names the unit after what its parameters' names have in common.
func (u *Unit) setName() {
	names := make([]string, len(u.pieces))
	for i, pc := range u.pieces {
		names[i] = pc.p.Name()
	}
	common := strings.Split(names[0], ".")
	for _, name := range names[1:] {
		k := 0
		for parts := strings.Split(name, "."); k < min(len(common), len(parts)) && common[k] == parts[k]; k++ {
		}
		common = common[:k]
	}
	what := strings.Join(common, ".")
	if what == "" {
		what = fmt.Sprintf("%s and %d more", names[0], len(names)-1)
	}
	u.name = fmt.Sprintf("unit %d (%s)", u.index, what)
}

// shape describes the unit, to compare ranks.
func (u *Unit) shape() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s keep=%v %v %v:", u.name, u.keep, u.compute, u.reduce)
	for _, pc := range u.pieces {
		b.WriteString(" " + describe(pc.p))
	}
	return b.String()
}

// describe says what ranks must have the same of a parameter that they share.
func describe(p *tensor.Param) string {
	s := p.String()
	if p.IsCut() {
		s += fmt.Sprintf(" of boxes %v", p.Placement().Boxes())
	}
	if p.Frozen() {
		s += " frozen"
	}
	if !p.Value.IsZero() {
		s += " with values"
	}
	return s
}
