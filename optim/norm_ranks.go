package optim

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// sumOverRanks sums over ranks, in the memory of the device if the Norm can.
func (o *Optimizer) sumOverRanks() error {
	if o.sum.Device().Host() {
		return o.norm.SumFloats(tensor.Data[float64](o.sum))
	}
	if n, ok := o.norm.(TensorNorm); ok {
		return n.SumTensor(o.sum)
	}
	x := tensor.ToHost(o.sum)
	if err := o.norm.SumFloats(tensor.Data[float64](x)); err != nil {
		return err
	}
	tensor.Copy(o.sum, x)
	return nil
}

// mustHoldAll panics if there is no Norm and this rank holds only a part of a parameter: the norm would be that of the part.
func (o *Optimizer) mustHoldAll() {
	if o.norm != nil || !o.scales() && o.nonfinite == Stop {
		return
	}
	for _, s := range o.states {
		if p := s.p; p.Local.Len() != p.GlobalLen() {
			fail("this rank holds %d of the %d elements of %s, and there is no Norm: Clip, Scaler and Skip would go by the norm of this rank's "+
				"part; give Config.Norm the group of all ranks that hold parts (Norm: r.World)", p.Local.Len(), p.GlobalLen(), p.Name())
		}
	}
}

// holding is a row of the table of what ranks hold, one for each of their parameters. Keys are hashes that float64 adds up exactly.
type holding struct{ name, boxes, lo, hi, want float64 }

const fields = 5

func key(s string) float64 { return float64(tensor.HashName(s) >> 12) }

// held is what the table says: which of this rank's parameters count in a sum over ranks (layout.Counted), whether all ranks have the same
// ones, and the first whose elements do not count once, or nil, with the number of elements that do.
type held struct {
	counted  []bool
	alike    bool
	wrong    *holding
	elements float64
}

// holdings makes the table. It is collective.
func holdings(n Norm, states []*paramState) (t held, err error) {
	sizes := make([]float64, n.Size()) // number of parameters of each rank
	sizes[n.Rank()] = float64(len(states))
	if err := n.SumFloats(sizes); err != nil {
		return t, err
	}
	first, total := 0, 0
	for r, size := range sizes {
		if r == n.Rank() {
			first = total
		}
		total += int(size)
	}
	table := make([]float64, fields*total)
	for i, s := range states {
		p := s.p
		lo, hi := p.Placement().Range()
		copy(table[fields*(first+i):],
			[]float64{key(p.Name()), key(fmt.Sprint(p.Placement().Boxes())), float64(lo), float64(hi), float64(p.GlobalLen())})
	}
	if err := n.SumFloats(table); err != nil {
		return t, err
	}
	var all []holding
	var parts []layout.Held[[2]float64]
	t.alike = total == len(states)*n.Size()
	for x := range slices.Chunk(table, fields) {
		h := holding{x[0], x[1], x[2], x[3], x[4]}
		all, parts = append(all, h), append(parts, layout.Held[[2]float64]{Of: [2]float64{h.name, h.boxes}, Lo: int(h.lo), Hi: int(h.hi)})
		t.alike = t.alike && h.name == all[(len(all)-1)%len(states)].name
	}
	counted, elements := layout.Counted(parts), map[float64]float64{}
	for i, h := range all {
		if counted[i] {
			elements[h.name] += h.hi - h.lo
		}
	}
	if i := slices.IndexFunc(all, func(h holding) bool { return elements[h.name] != h.want }); i >= 0 {
		t.wrong, t.elements = &all[i], elements[all[i].name]
	}
	t.counted = counted[first : first+len(states)]
	return t, nil
}

// findCounted finds out which parameters this rank counts in the norm (layout.Counted). It returns an error, on all ranks, unless the ranks
// count each element: the norm would be wrong, and nobody would notice. Ranks with the same parameters must have the same settings, too. It
// is collective, and is called before the first norm.
func (o *Optimizer) findCounted() error {
	h, err := holdings(o.norm, o.states)
	switch {
	case err != nil:
		return err
	case h.wrong != nil:
		return o.miscounted(*h.wrong, h.elements)
	}
	if o.counted = h.counted; !h.alike {
		return nil // stages of a pipeline
	}
	return o.agree(o.norm)
}

// miscounted says which parameter the ranks do not count once.
func (o *Optimizer) miscounted(h holding, elements float64) error {
	name := "a parameter that this rank does not have"
	for _, s := range o.states {
		if key(s.p.Name()) == h.name {
			name = s.p.Name()
		}
	}
	size, what := "small", "Norm must be the group of all ranks that hold parts of it (Norm: r.World)"
	if elements > h.want {
		size, what = "large", "ranks have cut it in different ways"
	}
	return fmt.Errorf("optim: the ranks of Norm count %v elements of %s, which has %v: the norm of gradients would be too %s; %s",
		elements, name, h.want, size, what)
}
