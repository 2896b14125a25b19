package dist

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// sameFactors compares by what sums over rows were multiplied. As in sameCounts, each of two ranks must have one that the other has not, of
// the same place in the program: ranks may have other numbers of microbatches, or no rows for one of the losses.
func sameFactors(what string, all []fed) error {
	ranks := map[int][]tensor.Factor{}
	for _, f := range all {
		for _, x := range f.Factors {
			if x.Site != 0 && !slices.Contains(ranks[f.Rank], x) {
				ranks[f.Rank] = append(ranks[f.Rank], x)
			}
		}
	}
	var others []int // ranks with different factors
	for _, a := range slices.Sorted(maps.Keys(ranks)) {
		if many(ranks[a]) || slices.ContainsFunc(others, func(b int) bool { return sameList(ranks[a], ranks[b]) }) {
			continue
		}
		for _, b := range others {
			if x, y, ok := clash(ranks[b], ranks[a]); ok {
				return fmt.Errorf("%s: a sum over rows is multiplied by %g on rank %d, and by %g on rank %d, in the same line: "+
					"divide by the count of the whole batch, tensor.GlobalMean or tensor.GlobalCount(x), or add your own count up over the ranks; "+
					"factors are all of Scale, Affine and Backward together; what belongs to a rank's own rows, such as a weight of their task, "+
					"multiplies them before the Sum", what, x, b, y, a)
			}
		}
		others = append(others, a)
	}
	return nil
}

func many(list []tensor.Factor) bool {
	return slices.ContainsFunc(list, func(x tensor.Factor) bool { return x.Site == tensor.ManyFactors })
}

func sameList(x, y []tensor.Factor) bool {
	return len(x) == len(y) && !slices.ContainsFunc(x, func(f tensor.Factor) bool { return !has(y, f) })
}

func has(list []tensor.Factor, f tensor.Factor) bool { return slices.ContainsFunc(list, f.Same) }

// clash returns two factors of one place, of which each list lacks the other's.
func clash(a, b []tensor.Factor) (x, y float64, ok bool) {
	for _, f := range a {
		for _, g := range b {
			if f.Site == g.Site && !has(b, f) && !has(a, g) {
				return f.Value, g.Value, true
			}
		}
	}
	return 0, 0, false
}
