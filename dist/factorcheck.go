package dist

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/compare"
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
			x, y, ok := clash(b.Factors, a.Factors, false)
			switch {
			case ok && x.Op != "":
				return fmt.Errorf("%s: %s has the number %g on rank %d, and %g on rank %d, in the same line: a number is the same on all "+
					"ranks, so add up what is made of own rows (SumFloats); what belongs to rows, such as a weight, is a tensor (Tensor.WithRows); "+
					"if ranks have other numbers of microbatches, put a penalty in the last%s", what, x.Op, x.Value, b.Rank, y.Value, a.Rank, line(x))
			case ok:
				return fmt.Errorf("%s: a sum over rows is multiplied by %g on rank %d, and by %g on rank %d, in the same line: "+
					"divide by the count of the whole batch, tensor.GlobalMean or tensor.GlobalCount(x), or add your own count up (SumFloats); "+
					"factors are all of Scale, Affine and Backward together; what belongs to rows, such as a weight of their task or 1 / the "+
					"length of their document, is a tensor (Tensor.WithRows) that multiplies them before the Sum%s", what, x.Value, b.Rank, y.Value,
					a.Rank, line(x))
			}
		}
		others = append(others, a)
	}
	return nil
}

// line names the line of the program that gave a number, or called AsPart.
func line(x tensor.Factor) string {
	switch {
	case x.At == "":
		return ""
	case x.Op == tensor.OwnRows && !x.Part:
		return "; they are chosen in " + x.At
	case x.Op == tensor.OwnRows:
		return "; it is the AsPart of " + x.At
	case x.Op == tensor.Same:
		return "; it is in " + x.At
	}
	return "; the number is that of " + x.At
}

// sameTerms compares the terms that count on the first rank alone, because all ranks have them: one that the first rank does not add is
// lost. Ranks may add them up in another order.
func sameTerms(what string, all []given) error {
	var first []tensor.Factor
	for _, g := range all {
		if !slices.ContainsFunc(g.Fed, func(f compare.Fed) bool { return f.N > 0 }) {
			return nil // a rank without rows, which may be the first, notes nothing
		}
		first = append(first, terms(g, true)...)
	}
	if tooMany(first) {
		return nil
	}
	for _, g := range all {
		mine := terms(g, false)
		i := slices.IndexFunc(mine, func(x tensor.Factor) bool {
			return !slices.ContainsFunc(first, func(y tensor.Factor) bool { return near(x.Value, y.Value) })
		})
		if i >= 0 && !many(g.Factors) && !tooMany(mine) && !near(sum(mine), sum(first)) {
			return fmt.Errorf("%s: rank %d adds a term of %g to the loss, which it has in common with all ranks, such as a penalty: it counts "+
				"on the first rank alone, and that one did not add it; let all ranks add the same terms: each counts once, so divide none by the "+
				"number of ranks", what, g.Rank, mine[i].Value)
		}
	}
	return nil
}

// terms returns the terms of all ranks that a rank adds, where they count, or where they do not.
func terms(g given, count bool) (list []tensor.Factor) {
	for _, x := range g.Factors {
		if x.Op == tensor.Term && x.Own == count {
			list = append(list, x)
		}
	}
	return list
}

// tooMany reports whether the rank adds more terms than it remembers.
func tooMany(list []tensor.Factor) bool {
	return slices.ContainsFunc(list, func(x tensor.Factor) bool { return x.Value == 0 })
}

func sum(list []tensor.Factor) (s float64) {
	for _, x := range list {
		s += x.Value
	}
	return s
}

// near reports whether x and y differ no more than ranks that add in another order.
func near(x, y float64) bool { return math.Abs(x-y) <= 1e-3*math.Abs(y) }

// warn warns if all ranks divide a sum by the number of their own rows, in two steps one after another of those that have the sum. Where
// ranks have equally many, that is the same number on all, and their losses are means over a rank's rows. So it does where a loss is
// divided by the number of ranks, but for 2: many losses have a half. Other numbers may be equal to these by chance, so it is no error. Nor
// is it one where ranks with other rows have the same data, or AsPart is of several rows together.
func (c *StepCheck) warn(what string, all []given) {
	say := func(again bool, text string) {
		if again && c.first && !c.warned {
			c.warned = true
			slog.Warn(what + ": " + text)
		}
	}
	own, others := ownFactors(all, len(all))
	twice, sums, labels, masks := sameData(all), sameSums(all), ownLabels(all), ownMasks(all)
	maps.DeleteFunc(c.own, func(site uint64, _ tensor.Factor) bool { return others[site] })
	for site, x := range own {
		_, again := c.own[site]
		say(again, warning(x)+line(x))
	}
	say(c.twice && twice != "", twice)
	say(c.labels && labels != "", labels)
	say(c.masks && masks != "", masks)
	for i, sum := range sums {
		say(sumsTo[sum] != "" && sum == c.sums[i], fmt.Sprintf("input %d with rows, in the order of their use, %s on each rank: if statistics "+
			"of a rank's own rows made it, such as their mean, the loss depends on the number of ranks: add statistics up over all ranks (SumFloats), or "+
			"compute them with the tape (GlobalMean, autograd.Sum); if each rank has all that belongs together, it is right", i+1, sumsTo[sum]))
	}
	maps.Copy(own, c.own)
	c.own, c.twice, c.sums, c.labels, c.masks = own, twice != "", sums, labels != "", masks != ""
}

var sumsTo = map[byte]string{'0': "adds up to 0", '1': "adds up to 1", 'n': "has the mean 1"} // see compare.Fed.Sums

// sameSums returns what inputs add up to on all ranks alike, where these have different rows.
func sameSums(all []given) (sums [len(compare.Fed{}.Sums)]byte) {
	firsts := map[int]bool{}
	for _, g := range all {
		for _, f := range g.Fed {
			switch {
			case f.N < 2:
				continue
			case len(firsts) == 0:
				sums = f.Sums
			}
			for i, sum := range f.Sums {
				if sum != sums[i] {
					sums[i] = '?'
				}
			}
			firsts[f.First] = true
		}
	}
	if len(all) == 1 || len(firsts) == 1 {
		clear(sums[:])
	}
	return sums
}

// ownLabels says which ranks have other values for rows of one label, where all rows of a rank with one label have the same; "": none.
func ownLabels(all []given) string {
	for _, a := range all {
		if len(a.Fed) != len(all[0].Fed) { // other microbatches
			continue
		}
		for i, x := range all[0].Fed {
			y := a.Fed[i]
			if v, w, ok := otherValue(x.Labels[:], y.Labels[:]); ok && x.First != y.First {
				return fmt.Sprintf("an input with rows depends on their label alone, and differs between ranks: for label %g it adds up to %g on "+
					"rank %d and to %g on rank %d: if it is made of a rank's own rows, such as how many of them have the label, the loss depends on "+
					"the number of ranks: add counts up over all ranks (SumFloats); if each rank has all that belongs together, it is right",
					v.Label, v.Value, all[0].Rank, w.Value, a.Rank)
			}
		}
	}
	return ""
}

// ownMasks says which ranks have other constants for all of their rows; "": none.
func ownMasks(all []given) string {
	for _, a := range all {
		if x, _, ok := clash(all[0].Factors, a.Factors, true); ok {
			return fmt.Sprintf("an operation combines each row of rank %d with a mask, or another constant without Rows, and those of rank %d "+
				"with another one: if it was drawn with a seed of the rank, the loss depends on the number of ranks: draw it with one seed on all; "+
				"if rows have masks of their own, give each its own (Tensor.WithRows); if each rank has all that belongs together, it is right%s",
				all[0].Rank, a.Rank, line(x))
		}
	}
	return ""
}

// otherValue returns a label that has other values in a and b.
func otherValue(a, b []compare.Label) (x, y compare.Label, ok bool) {
	for _, x := range a {
		for _, y := range b {
			if x.Rows > 0 && y.Rows > 0 && x.Label == y.Label && !near(x.Value, y.Value) {
				return x, y, true
			}
		}
	}
	return x, y, false
}

// sameData says which ranks have other rows of a batch and the same values in them; "": none.
func sameData(all []given) string {
	type data struct {
		values uint64
		batch  int
	}
	seen := map[data][2]int{} // a rank and its first row
	for _, a := range all {
		for _, x := range a.Fed {
			d := data{x.Values, x.Number}
			switch b, known := seen[d]; {
			case x.Values == 0:
			case !known:
				seen[d] = [2]int{a.Rank, x.First}
			case b[0] != a.Rank && b[1] != x.First:
				return fmt.Sprintf("rank %d has rows of the batch from %d on, and rank %d from %d on, with the same values: if ranks read the same "+
					"file, or draw with the same seed, let each take the rows of its place (Rows.First), or use a data.Loader with Sharder: r.World; "+
					"if the data repeats itself, it is right", b[0], b[1], a.Rank, x.First)
			}
		}
	}
	return ""
}

// warning says what x is that all ranks have alike.
func warning(x tensor.Factor) string {
	switch {
	case x.Op == tensor.OwnRows && !x.Part:
		return "rows that a rank chose by values of its own rows (TopK, Sort, Max) reach the loss without the others: on another number of " +
			"ranks, others may be chosen; choose among the rows of all (autograd.Gather), unless each rank has all that belongs together, or " +
			"what is left out has no weight"
	case x.Op == tensor.OwnRows:
		return "tensor.AsPart has what is made of several of a rank's rows together, such as the largest of them, or a product of rows: on " +
			"another number of ranks, others are together, and the loss is another one. If each rank has all that belongs together, such as a " +
			"document, it is right; otherwise gather the rows of all ranks before it (autograd.Gather), or sum statistics (autograd.Sum)"
	case x.Own:
		return fmt.Sprintf("a sum over rows is multiplied by %g, which is 1 / the number of a rank's own rows, or of its positions: if it is "+
			"meant to be their mean, gradients are too large by the number of ranks, and tensor.GlobalMean(x) is right; tape.Agree(n) says that n is counted over all ranks",
			x.Value)
	}
	return fmt.Sprintf("a loss is multiplied by %g, which is 1 / the number of ranks: if it is meant to divide the loss among them, leave it "+
		"out; losses divide by the rows of all ranks, and what all have, such as a penalty, counts once", x.Hand)
}

// ownFactors returns the factors that are 1 / the number of a rank's own rows, or of ranks, on all ranks that have them, by their place in
// the program, and the places of others.
func ownFactors(all []given, ranks int) (own map[uint64]tensor.Factor, others map[uint64]bool) {
	own, others = map[uint64]tensor.Factor{}, map[uint64]bool{}
	for _, f := range all {
		for _, x := range f.Factors {
			if x.Op != tensor.Term && (x.Own || ranks > 2 && math.Abs(x.Hand*float64(ranks)-1) < 1e-9) {
				own[x.Site] = x
			} else {
				others[x.Site] = true
			}
		}
	}
	maps.DeleteFunc(own, func(site uint64, _ tensor.Factor) bool { return others[site] })
	return own, others
}

func many(list []tensor.Factor) bool {
	return slices.ContainsFunc(list, func(x tensor.Factor) bool { return x.Site == tensor.ManyFactors })
}

func sameList(x, y []tensor.Factor) bool {
	return len(x) == len(y) && !slices.ContainsFunc(x, func(f tensor.Factor) bool { return !has(y, f) })
}

// sole reports whether no other factor of list is of f's place.
func sole(list []tensor.Factor, f tensor.Factor) bool {
	return !slices.ContainsFunc(list, func(g tensor.Factor) bool { return g.Site == f.Site && !g.Same(f) })
}

func has(list []tensor.Factor, f tensor.Factor) bool { return slices.ContainsFunc(list, f.Same) }

// clash returns two factors of one place, of which each list lacks the other's. Behind AsPart a program may take sums one by one, each with
// a number of its own: so there, each list must have only one. same is for constants.
func clash(a, b []tensor.Factor, same bool) (x, y tensor.Factor, ok bool) {
	for _, f := range a {
		for _, g := range b {
			if f.Site == g.Site && (f.Op == tensor.Same) == same && !has(b, f) && !has(a, g) && (!f.Part || sole(a, f) && sole(b, g)) {
				return f, g, true
			}
		}
	}
	return x, y, false
}
