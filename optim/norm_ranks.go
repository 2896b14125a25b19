package optim

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// sumOverRanks sums over ranks, in the memory of the device if the Norm can. Before the first time, it checks that the ranks count each
// element once.
func (o *Optimizer) sumOverRanks() error {
	if !o.sound {
		if err := o.countsOnce(); err != nil {
			return err
		}
		o.sound = true
	}
	if o.sums.Device().Host() {
		return o.norm.SumFloats(tensor.Data[float64](o.sums))
	}
	if n, ok := o.norm.(TensorNorm); ok {
		return n.SumTensor(o.sums)
	}
	x := tensor.ToHost(o.sums)
	if err := o.norm.SumFloats(tensor.Data[float64](x)); err != nil {
		return err
	}
	tensor.Copy(o.sums, x)
	return nil
}

// mustHoldAll panics if there is no Norm and this rank holds only a part of a parameter: the norm would be that of the part.
func (o *Optimizer) mustHoldAll() {
	if !o.scales() {
		return
	}
	for i := range o.states {
		p := o.states[i].p
		switch {
		case p.Types().On(tensor.Cut) != 0 && len(p.Shard.Boxes) == 0:
			fail("%v is sharded (Lay), but its part of the model's tensor is unknown, so the norm of gradients cannot count it: "+
				"call Param.Cut before it has values", p)
		case o.norm == nil && p.Local.Len() != p.GlobalLen():
			fail("this rank holds %d of the %d elements of %s, and there is no Norm: Clip and Scaler would go by the norm of this rank's part; "+
				"give Config.Norm the group of all ranks that hold parts (Norm: r.World)", p.Local.Len(), p.GlobalLen(), p.Name())
		}
	}
}

// tally holds what ranks count of one parameter in the norm.
type tally struct {
	name     string
	want     float64 // elements of the model's tensor
	elements float64 // elements that are counted
	whole    float64 // ranks for which the parameter is whole on every rank
}

// tally returns this rank's counts.
func (s *paramState) tally() tally {
	y := tally{name: s.p.Name(), want: float64(s.p.GlobalLen())}
	switch {
	case s.p.Shard.Global == nil:
		y.elements, y.whole = y.want, 1
	case s.p.Shard.Counts:
		y.elements = float64(s.p.Local.Len())
	}
	return y
}

// check returns an error unless the sums over the ranks count each element once, or all elements on every rank.
func (y tally) check(ranks float64) error {
	const norm = "optim: the ranks of Norm count %v elements of %s, which has %v: "
	switch {
	case y.whole == ranks || y.whole == 0 && y.elements == y.want:
		return nil
	case y.whole > 0:
		return fmt.Errorf("optim: %v of the %v ranks of Norm take %s to be whole on all of them: say on those what they hold, by Param.Cut, "+
			"or by NarrowCounts, in the group of the ranks that hold the same", y.whole, ranks, y.name)
	case y.elements < y.want:
		return fmt.Errorf(
			norm+"the norm of gradients would be too small; Norm must be the group of all ranks that hold parts of it (Norm: r.World)",
			y.elements, y.name, y.want)
	}
	return fmt.Errorf(norm+"the norm of gradients would be too large; of the ranks that hold the same, all but one must say so: "+
		"p.NarrowCounts(g.Rank() == 0), with their group g (ddp and fsdp do it for theirs)", y.elements, y.name, y.want)
}

// countsOnce returns an error if the ranks of the Norm do not count each element of each parameter exactly once. The norm would be wrong,
// and nobody would notice. Ranks with the same parameters have the same settings, too. It is collective, and is called before the first
// norm. All ranks return an error, or none does.
func (o *Optimizer) countsOnce() error {
	var names strings.Builder
	for i := range o.states {
		fmt.Fprintln(&names, o.states[i].p.Name(), o.states[i].p.Global())
	}
	n, key := float64(len(o.states)), float64(uint32(tensor.HashName(names.String())))
	sums := []float64{1, n, key}
	if err := o.norm.SumFloats(sums); err != nil {
		return err
	}
	if ranks := sums[0]; sums[1] != ranks*n || sums[2] != ranks*key {
		return o.countsOnceElsewhere()
	}
	counts := make([]float64, 0, 2*len(o.states))
	for i := range o.states {
		y := o.states[i].tally()
		counts = append(counts, y.elements, y.whole)
	}
	if err := o.norm.SumFloats(counts); err != nil {
		return err
	}
	for i := range o.states {
		y := o.states[i].tally()
		y.elements, y.whole = counts[2*i], counts[2*i+1]
		if err := y.check(sums[0]); err != nil {
			return err
		}
	}
	return o.agree(o.norm)
}

// countsOnceElsewhere is countsOnce for ranks with different parameters, such as the stages of a pipeline: each rank gets the others'
// counts.
func (o *Optimizer) countsOnceElsewhere() error {
	g, ok := o.norm.(interface {
		Rank() int
		Size() int
	})
	if !ok {
		return fmt.Errorf("optim: ranks of Norm have other parameters than this one: Norm must be a group of package dist, not %T", o.norm)
	}
	held := make([]float64, g.Size()) // number of parameters of each rank
	held[g.Rank()] = float64(len(o.states))
	if err := o.norm.SumFloats(held); err != nil {
		return err
	}
	total, first := 0, 0
	for r, n := range held {
		if r == g.Rank() {
			first = total
		}
		total += int(n)
	}
	const fields = 4
	all, names := make([]float64, fields*total), map[float64]string{}
	for i := range o.states {
		y := o.states[i].tally()
		key := float64(tensor.HashName(y.name) >> 12) // exact in a float64
		names[key] = y.name
		copy(all[fields*(first+i):], []float64{key, y.want, y.elements, y.whole})
	}
	if err := o.norm.SumFloats(all); err != nil {
		return err
	}
	return checkTable(all, names, float64(g.Size()))
}

// checkTable sums the counts of ranks. all has rows of a key (from the name) and the numbers of a tally. names has the names that this rank
// knows.
func checkTable(all []float64, names map[float64]string, ranks float64) error {
	at, tallies := map[float64]int{}, []tally(nil)
	for ; len(all) > 0; all = all[4:] {
		i, ok := at[all[0]]
		if !ok {
			i = len(tallies)
			at[all[0]] = i
			tallies = append(tallies, tally{name: names[all[0]], want: all[1]})
			if tallies[i].name == "" {
				tallies[i].name = "a parameter that this rank does not have"
			}
		}
		y := &tallies[i]
		y.want, y.elements, y.whole = max(y.want, all[1]), y.elements+all[2], y.whole+all[3]
	}
	for _, y := range tallies {
		if err := y.check(ranks); err != nil {
			return err
		}
	}
	return nil
}
