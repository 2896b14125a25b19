package ckpt

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// localPlan is what a rank holds, as it sends it to rank 0.
type localPlan struct {
	Items     []writeItem
	Optimizer bool     // the rank has one
	Counted   []string // the optimizer's parameters, by their stored names
}

// rankPlan is what a rank keeps of a plan for the next save: what the plan was made from, and this rank's work.
type rankPlan struct {
	sources []structure
	counts  map[string]int // keys: the optimizer's parameters; nil: no optimizer
	rules   string

	items  []item // of the sources, in their order; they have data only during a save
	files  []string
	jobs   []*job  // the work on these items
	pieces []piece // of all jobs, in the order of the global plan
	global *plan   // on rank 0
}

// newRankPlan lists what this rank holds. Rank 0 plans the rest.
func newRankPlan(st *State, o *optim.State) (p *rankPlan, err error) {
	p = &rankPlan{counts: o.Counts, rules: text(st.TP)}
	n := 0
	for range st.sources(o) {
		n++
	}
	p.items, p.sources = make([]item, 0, n), make([]structure, 0, n)
	apart := st.apart(o.Counts)
	for x := range st.sources(o) {
		first := len(p.items)
		x.apart = !x.model && apart[x.of]
		if p.items, err = x.appendItems(p.items); err != nil {
			return nil, err
		}
		p.sources = append(p.sources, newStructure(&x, len(p.items)-first))
	}
	return p, p.twice(st)
}

// twice returns an error if two parameters are in one place of a file: a load would give both the same values.
func (p *rankPlan) twice(st *State) error {
	of := map[string][]*item{}
	for i := range p.items {
		x := &p.items[i]
		if !x.Model {
			continue
		}
		for _, y := range of[x.Name] {
			if x.of != y.of && x.overlaps(y) {
				return fmt.Errorf("numbers %d and %d of State.Params, %s and %s, are both stored as %s: give those of one nn.ParamsOf, "+
					"of a struct that holds both models", slices.Index(st.Params, y.of), slices.Index(st.Params, x.of), y.of.Name(), x.of.Name(), x.Name)
			}
		}
		of[x.Name] = append(of[x.Name], x)
	}
	return nil
}

// overlaps reports whether two items of a stored tensor have an element in common.
func (x *item) overlaps(y *item) bool {
	a, b := x.memoryPart(), y.memoryPart()
	for _, s := range a.ByBox() {
		for _, r := range b.ByBox() {
			if s.Box.Equal(r.Box) && s.Lo < r.Hi && r.Lo < s.Hi {
				return true
			}
		}
	}
	return false
}

// local returns the local plan to send to rank 0.
func (p *rankPlan) local(st *State) localPlan {
	l := localPlan{Items: make([]writeItem, len(p.items)), Optimizer: p.counts != nil}
	for i := range p.items {
		l.Items[i] = p.items[i].writeItem
	}
	names := st.inFiles(p.counts)
	for name := range p.counts {
		l.Counted = append(l.Counted, names(name)...)
	}
	slices.Sort(l.Counted)
	l.Counted = slices.Compact(l.Counted)
	return l
}

// structure is everything about a source that a plan depends on, so not its values or their address.
type structure struct {
	model      bool
	name       string
	dtype      tensor.DType
	length     int
	place      layout.Placement
	stored     []tensor.Stored
	transposed bool

	items int // number of items that the source is stored as
}

func newStructure(x *source, items int) structure {
	p := x.of
	return structure{x.model, x.name, x.data.DType(), x.data.Len(), p.Placement(), slices.Clone(p.Stored()), p.Transposed(), items}
}

// same reports whether a source has this structure. It does not allocate, because a model has thousands of sources.
func (s *structure) same(x *source) bool {
	p := x.of
	return s.model == x.model && s.name == x.name && x.ready() == nil && s.dtype == x.data.DType() && s.length == x.data.Len() &&
		s.place.Equal(p.Placement()) && slices.Equal(s.stored, p.Stored()) && s.transposed == p.Transposed()
}

// plans reports whether the plan is valid for this State and optimizer state. If it is, plans gives the items their
// data.
func (p *rankPlan) plans(st *State, o *optim.State) bool {
	if p == nil || len(p.sources) != len(st.Params)+len(o.Tensors) || (p.counts == nil) != (o.Counts == nil) ||
		!maps.EqualFunc(p.counts, o.Counts, func(int, int) bool { return true }) || p.rules != text(st.TP) {
		return false
	}
	i, items := 0, p.items
	for x := range st.sources(o) {
		s := &p.sources[i]
		if !s.same(&x) {
			p.release()
			return false
		}
		for k := range items[:s.items] {
			items[k].take(x.data)
		}
		i, items = i+1, items[s.items:]
	}
	return true
}

// release drops the references to tensors, which the program may change between saves, and the checksums of their
// values.
func (p *rankPlan) release() {
	if p == nil {
		return
	}
	for i := range p.items {
		p.items[i].data, p.items[i].of = tensor.Tensor{}, nil
	}
	for _, j := range p.jobs {
		j.data = nil
	}
	for i := range p.pieces {
		p.pieces[i].hash, p.pieces[i].sum = [sha256.Size]byte{}, 0
	}
}
