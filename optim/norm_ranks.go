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
	for i := range o.states {
		if p := o.states[i].p; p.Local.Len() != p.GlobalLen() {
			fail("this rank holds %d of the %d elements of %s, and there is no Norm: Clip, Scaler and Skip would go by the norm of this rank's "+
				"part; give Config.Norm the group of all ranks that hold parts (Norm: r.World)", p.Local.Len(), p.GlobalLen(), p.Name())
		}
	}
}

// holding is a row of the table of what ranks hold, one for each of their parameters. Keys are hashes that float64 adds up exactly.
type holding struct{ name, boxes, lo, hi, want float64 }

const fields = 5

func key(s string) float64 { return float64(tensor.HashName(s) >> 12) }

// holdings returns the table, and the first of this rank's rows. It is collective.
func holdings(n Norm, params []*tensor.Param) (all []holding, first int, err error) {
	held := make([]float64, n.Size()) // number of parameters of each rank
	held[n.Rank()] = float64(len(params))
	if err := n.SumFloats(held); err != nil {
		return nil, 0, err
	}
	total := 0
	for r, h := range held {
		if r == n.Rank() {
			first = total
		}
		total += int(h)
	}
	table := make([]float64, fields*total)
	for i, p := range params {
		lo, hi := p.Placement().Range()
		copy(table[fields*(first+i):],
			[]float64{key(p.Name()), key(fmt.Sprint(p.Placement().Boxes())), float64(lo), float64(hi), float64(p.GlobalLen())})
	}
	if err := n.SumFloats(table); err != nil {
		return nil, 0, err
	}
	for x := range slices.Chunk(table, fields) {
		all = append(all, holding{x[0], x[1], x[2], x[3], x[4]})
	}
	return all, first, nil
}

// findCounted finds out which parameters this rank counts in the norm (layout.Counted). It returns an error, on all ranks, unless the ranks
// count each element: the norm would be wrong, and nobody would notice. Ranks with the same parameters must have the same settings, too. It
// is collective, and is called before the first norm.
func (o *Optimizer) findCounted() error {
	params := make([]*tensor.Param, len(o.states))
	for i := range o.states {
		params[i] = o.states[i].p
	}
	all, first, err := holdings(o.norm, params)
	if err != nil {
		return err
	}
	n, alike := len(o.states), true
	for i, h := range all {
		alike = alike && len(all) == n*o.norm.Size() && h.name == all[i%n].name
	}
	counted, elements := countHeld(all)
	for _, h := range all {
		if elements[h.name] != h.want {
			return o.miscounted(h, elements[h.name])
		}
	}
	o.counted = counted[first : first+n]
	if !alike {
		return nil // stages of a pipeline
	}
	return o.agree(o.norm)
}

// countHeld says which of the holdings count, and how many elements of each parameter these have.
func countHeld(all []holding) (counted []bool, elements map[float64]float64) {
	held := make([]layout.Held[[2]float64], len(all))
	for i, h := range all {
		held[i] = layout.Held[[2]float64]{Of: [2]float64{h.name, h.boxes}, Lo: int(h.lo), Hi: int(h.hi)}
	}
	counted, elements = layout.Counted(held), map[float64]float64{}
	for i, h := range all {
		if counted[i] {
			elements[h.name] += h.hi - h.lo
		}
	}
	return counted, elements
}

// miscounted says which parameter the ranks do not count once.
func (o *Optimizer) miscounted(h holding, elements float64) error {
	name := "a parameter that this rank does not have"
	for i := range o.states {
		if p := o.states[i].p; key(p.Name()) == h.name {
			name = p.Name()
		}
	}
	size, what := "small", "Norm must be the group of all ranks that hold parts of it (Norm: r.World)"
	if elements > h.want {
		size, what = "large", "ranks have cut it in different ways"
	}
	return fmt.Errorf("optim: the ranks of Norm count %v elements of %s, which has %v: the norm of gradients would be too %s; %s",
		elements, name, h.want, size, what)
}
