package held

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks are those that a sum goes over: optim.Norm.
type Ranks interface {
	Summer
	Rank() int
	Size() int
}

// Sum describes a sum over ranks, for errors.
type Sum struct {
	Field string // of the configuration: that with the ranks
	Of    string // what is summed
	Alike string // what all ranks must have alike; "": they may have different parameters, as stages of a pipeline have
}

// The columns of the table of what ranks hold. Each rank has a row for each of its parameters.
const name, boxes, lo, hi, size, columns = 0, 1, 2, 3, 4, 5

// key is a hash that a float64 holds exactly.
func key(s string) float64 { return float64(tensor.HashName(s) >> 12) }

// Count says which of this rank's parameters count in a sum over ranks (layout.Counted). It returns an error, on all ranks, unless each
// element counts once: the sum would be wrong, and nobody would notice. Ranks with the same parameters must have the same settings (see
// Compare), too. It is collective.
func Count(ranks Ranks, params []*tensor.Param, sum Sum, settings []string) (counted []bool, err error) {
	table, first, err := tableOf(ranks, params)
	if err != nil {
		return nil, err
	}
	rows := slices.Collect(slices.Chunk(table, columns))
	parts := make([]layout.Held[[2]float64], len(rows))
	alike := len(rows) == len(params)*ranks.Size()
	for i, x := range rows {
		parts[i] = layout.Held[[2]float64]{Of: [2]float64{x[name], x[boxes]}, Lo: int(x[lo]), Hi: int(x[hi])}
		alike = alike && x[name] == rows[i%len(params)][name]
	}
	if !alike && sum.Alike != "" {
		return nil, fmt.Errorf("optim: the ranks of %s have different %s: it is the group of the ranks that have parts or copies of the "+
			"same ones, such as those of one stage of a pipeline", sum.Field, sum.Alike)
	}
	counted = layout.Counted(parts)
	elements := map[float64]float64{}
	for i, x := range rows {
		if counted[i] {
			elements[x[name]] += x[hi] - x[lo]
		}
	}
	for _, x := range rows {
		if n := elements[x[name]]; n != x[size] {
			return nil, sum.miscounted(params, x, n)
		}
	}
	if alike {
		err = Compare(ranks, settings)
	}
	return counted[first : first+len(params)], err
}

// tableOf returns the table of all ranks, and the first row of this rank.
func tableOf(ranks Ranks, params []*tensor.Param) (table []float64, first int, err error) {
	sizes := make([]float64, ranks.Size()) // number of parameters of each rank
	sizes[ranks.Rank()] = float64(len(params))
	if err := ranks.SumFloats(sizes); err != nil {
		return nil, 0, err
	}
	total := 0
	for r, n := range sizes {
		if r == ranks.Rank() {
			first = total
		}
		total += int(n)
	}
	table = make([]float64, columns*total)
	for i, p := range params {
		lo, hi := p.Placement().Range()
		copy(table[columns*(first+i):],
			[]float64{key(p.Name()), key(fmt.Sprint(p.Placement().Boxes())), float64(lo), float64(hi), float64(p.GlobalLen())})
	}
	return table, first, ranks.SumFloats(table)
}

// miscounted says which parameter's elements do not count once.
func (s Sum) miscounted(params []*tensor.Param, row []float64, elements float64) error {
	of := "a parameter that this rank does not have"
	if i := slices.IndexFunc(params, func(p *tensor.Param) bool { return key(p.Name()) == row[name] }); i >= 0 {
		of = params[i].Name()
	}
	much, why := "small", s.Field+" must be the group of all ranks that hold parts of it"
	if s.Alike == "" {
		why += " (" + s.Field + ": r.World)"
	}
	if elements > row[size] {
		much, why = "large", "ranks have cut it in different ways"
	}
	return fmt.Errorf("optim: the ranks of %s count %v elements of %s, which has %v: the %s would be too %s; %s",
		s.Field, elements, of, row[size], s.Of, much, why)
}

// Summer sums x over ranks, in place.
type Summer interface{ SumFloats(x []float64) error }

// Compare returns an error on all ranks, which have parts of the same parameters, unless their settings, such as "LR is 0.1", are the same.
// Each rank would change its part of the model in its own way, and nobody would notice. It is collective.
func Compare(ranks Summer, settings []string) error {
	own := []float64{1}
	for _, s := range settings {
		own = append(own, float64(uint32(tensor.HashName(s)))) // float64 adds them up exactly
	}
	sums := slices.Clone(own)
	if err := ranks.SumFloats(sums); err != nil {
		return err
	}
	for i, s := range settings {
		if sums[i+1] != sums[0]*own[i+1] {
			return fmt.Errorf("optim: ranks that share parameters have different optimizers: %s here, but not on all of the %v ranks", s, sums[0])
		}
	}
	return nil
}
