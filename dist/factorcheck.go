package dist

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// sameFactors compares by what sums over rows were multiplied. As in sameCounts, each of two ranks must have one that the other has not, of
// the same place in the program: ranks may have other numbers of microbatches, or no rows for one of the losses.
func sameFactors(what string, all []given) error {
	var others []given // with different factors
	for _, a := range all {
		if many(a.Factors) || slices.ContainsFunc(others, func(b given) bool { return sameList(a.Factors, b.Factors) }) {
			continue
		}
		for _, b := range others {
			x, y, ok := clash(b.Factors, a.Factors)
			switch {
			case ok && x.Op != "":
				return fmt.Errorf("%s: %s has the number %g on rank %d, and %g on rank %d, in the same line: a number is the same on all "+
					"ranks, so add up what is made of own rows (SumFloats); what belongs to rows, such as a weight, is a tensor (Tensor.WithRows)",
					what, x.Op, x.Value, b.Rank, y.Value, a.Rank)
			case ok:
				return fmt.Errorf("%s: a sum over rows is multiplied by %g on rank %d, and by %g on rank %d, in the same line: "+
					"divide by the count of the whole batch, tensor.GlobalMean or tensor.GlobalCount(x), or add your own count up (SumFloats); "+
					"factors are all of Scale, Affine and Backward together; what belongs to rows, such as a weight of their task, is a tensor "+
					"(Tensor.WithRows) that multiplies them before the Sum", what, x.Value, b.Rank, y.Value, a.Rank)
			}
		}
		others = append(others, a)
	}
	return nil
}

// warn warns if all ranks divide a sum by the number of their own rows, in two steps one after another. Where ranks have equally many, that
// is the same number on all, and their losses are means over a rank's rows. Other numbers may be equal to it by chance, so it is no error.
func (c *StepCheck) warn(what string, all []given, groups []*Group) {
	own := ownFactors(all)
	for site, x := range own {
		first := !slices.ContainsFunc(groups, func(g *Group) bool { return g.Rank() != 0 })
		if _, again := c.own[site]; again && first && !c.warned {
			c.warned = true
			slog.Warn(fmt.Sprintf("%s: a sum over rows is multiplied by %g, which is 1 / the number of a rank's own rows: if it is meant to be "+
				"their mean, gradients are too large by the number of ranks, and tensor.GlobalMean(x) is right; tape.Agree(n) says that n is "+
				"counted over all ranks", what, x.Value))
		}
	}
	c.own = own
}

// ownFactors returns the factors that are 1 / the number of a rank's own rows on all ranks that have them, by their place in the program.
func ownFactors(all []given) map[uint64]tensor.Factor {
	own, others := map[uint64]tensor.Factor{}, map[uint64]bool{}
	for _, f := range all {
		for _, x := range f.Factors {
			if x.Own {
				own[x.Site] = x
			} else {
				others[x.Site] = true
			}
		}
	}
	maps.DeleteFunc(own, func(site uint64, _ tensor.Factor) bool { return others[site] })
	return own
}

func many(list []tensor.Factor) bool {
	return slices.ContainsFunc(list, func(x tensor.Factor) bool { return x.Site == tensor.ManyFactors })
}

func sameList(x, y []tensor.Factor) bool {
	return len(x) == len(y) && !slices.ContainsFunc(x, func(f tensor.Factor) bool { return !has(y, f) })
}

func has(list []tensor.Factor, f tensor.Factor) bool { return slices.ContainsFunc(list, f.Same) }

// clash returns two factors of one place, of which each list lacks the other's.
func clash(a, b []tensor.Factor) (x, y tensor.Factor, ok bool) {
	for _, f := range a {
		for _, g := range b {
			if f.Site == g.Site && !has(b, f) && !has(a, g) {
				return f, g, true
			}
		}
	}
	return x, y, false
}
