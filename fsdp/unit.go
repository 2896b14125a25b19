package fsdp

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// piece is a parameter in its unit.
type piece struct {
	p      *tensor.Param
	u      *unit
	off    int           // of its first element in the unit
	lo, hi int           // its elements that this rank owns
	grad   tensor.Tensor // whole, in the parameter's shape; none if it was frozen at Attach
	part   tensor.Tensor // of the gradient: elements lo to hi
	got    bool          // has a gradient in this Backward, or with HoldGrads in an earlier one of the step
	any    bool          // got one in this step
}

// unit is a set of parameters that are gathered and reduced together.
type unit struct {
	index  int
	name   string
	keep   bool // values stay until the optimizer changes them
	pieces []*piece
	n      int   // elements
	counts []int // of each rank
	lo, hi int   // elements that this rank owns

	local  tensor.Tensor // what the optimizer updates: elements lo to hi
	flat   tensor.Tensor // all elements, in the type they are used in; no memory unless gathered
	mine   tensor.Tensor // elements lo to hi of flat
	buf    tensor.Tensor // memory of flat, from the pool
	narrow tensor.Tensor // with Config.Offload: local in the type of flat, if that is another one
	gather dist.Work
	here   bool // flat may be used
	fresh  bool // of a kept unit: flat was gathered, or is being gathered, since values changed

	trained  int              // elements that have gradients: the first ones
	gcounts  []int            // of these, each rank's
	grads    tensor.Tensor    // all of them; stages 2 and 3: no memory but during Backward
	gmine    tensor.Tensor    // this rank's part of grads
	shard    tensor.Tensor    // the sum over ranks and microbatches of this part
	host     tensor.Tensor    // with Config.Offload: shard for the optimizer
	gbuf     tensor.Tensor    // memory of grads, from wholes
	wholes   *pool            // a kept unit's own: it may need its gradients throughout Backward
	lent     bool             // grads may be written to in this Backward
	waiting  int              // parameters whose gradient may still come in this Backward
	complete bool             // no more gradients will come in this Backward
	after    []tensor.Pending // what must be over before all have come
	again    bool             // shard has the gradients of earlier microbatches
	reduce   dist.Work
}

// cut returns the first element of a rank's part of n elements.
func cut(n, rank, ranks int) int { return n/ranks*rank + min(rank, n%ranks) }

// plan places the unit's parameters in it, those with gradients first.
func (u *unit) plan(rank, ranks int) {
	var trained, frozen []*piece
	for _, pc := range u.pieces {
		if pc.p.Frozen() {
			frozen = append(frozen, pc)
		} else {
			trained = append(trained, pc)
		}
	}
	u.pieces = append(trained, frozen...)
	for i, pc := range u.pieces {
		pc.off = u.n
		u.n += pc.p.Len()
		if i < len(trained) {
			u.trained = u.n
		}
	}
	for r := range ranks {
		lo, hi := cut(u.n, r, ranks), cut(u.n, r+1, ranks)
		u.counts = append(u.counts, hi-lo)
		u.gcounts = append(u.gcounts, max(0, min(hi, u.trained)-lo))
	}
	u.lo, u.hi = cut(u.n, rank, ranks), cut(u.n, rank+1, ranks)
	for _, pc := range u.pieces {
		pc.lo, pc.hi = u.owned(pc, u.lo, u.hi)
	}
}

// owned returns which elements of pc lie between elements lo and hi of the unit.
func (u *unit) owned(pc *piece, lo, hi int) (first, end int) {
	n := pc.p.Len()
	first = min(max(lo-pc.off, 0), n)
	return first, min(max(hi-pc.off, first), n)
}

// setName names the unit after what its parameters' names have in common.
func (u *unit) setName() {
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
func (u *unit) shape() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s keep=%v:", u.name, u.keep)
	for _, pc := range u.pieces {
		fmt.Fprintf(&b, " %v frozen=%v", pc.p, pc.p.Frozen())
	}
	return b.String()
}

// current reports whether a gather of the unit would change nothing.
func (u *unit) current() bool { return u.keep && u.fresh }
