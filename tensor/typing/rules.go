package typing

import "github.com/ringo-ml/ringo/layout"

// Class says how an operation treats a Partial tensor, whose value is the sum over the ranks.
type Class uint8

// The classes.
const (
	Nonlinear   Class = iota // not linear: it needs the sum; this is safe for every operation
	Linear                   // linear in all inputs together: all of them are partial, or none
	Multilinear              // linear in each of inputs 0 and 1; further inputs are added
	Indexed                  // linear in input 0, and in input 2 if there is one; input 1 has indices
	Selects                  // linear in inputs 1 and 2; input 0 selects elements from them
	Ratio                    // linear in input 0, which it divides by input 1
)

// Inputs holds, for each kind, the axes on which an input of an operation is of that kind. same has those of inputs without a gradient that
// are the same on all ranks: they fit invariant and replicated inputs alike.
type Inputs struct{ v, c, o, p, i, r, same layout.Axes }

// Add adds an input; grad says whether it has a gradient.
func (s *Inputs) Add(ty layout.Types, grad bool) {
	b0, b1, b2 := ty.Bits()
	s.v |= b0 &^ (b1 | b2)
	s.c |= b0 & b2
	s.o |= b2 &^ b0
	s.p |= b1 &^ b0
	if grad {
		s.i |= b0 & b1
		s.r |= ^(b0 | b1 | b2)
	} else {
		s.same |= ^(b0 ^ b1 | b2)
	}
}

// AddIndex is Add for an input that may choose elements: what is this rank's own among the indices picks rows of this rank.
func (s *Inputs) AddIndex(ty layout.Types, grad bool) {
	s.Add(ty.With(ty.On(layout.Own)|ty.On(layout.Partial), layout.Varying), grad)
}

// Types returns the types of the output, if the inputs fit: own if an input is own, else cut, varying, partial or invariant.
func (s *Inputs) Types() layout.Types {
	return layout.TypesOf((s.v|s.c|s.i)&^s.o, s.p|s.i, s.c|s.o)
}

// Suspects returns the axes on which inputs may not fit: Fit looks at them.
func (s *Inputs) Suspects() layout.Axes { return s.i&(s.v|s.c|s.o|s.p|s.r) | s.v&s.c | s.p }

// Loose returns the types of the output where nothing is refused, as for counts and positions: what mixes partial sums with others is this
// rank's own.
func (s *Inputs) Loose(c Class) layout.Types {
	if c != Linear || s.p&(s.v|s.c|s.o|s.i|s.r|s.same) != 0 {
		s.p, s.o = 0, s.o|s.p
	}
	return s.Types()
}

// Operand is an input, for a closer look.
type Operand struct {
	Name  string // for errors alone
	Types layout.Types
	None  bool // there is no such input
	Grad  bool // it has a gradient
	Zeros bool // all elements are 0: to add it changes nothing
}

// Misfit says which inputs do not fit: along Axes, one of kind Have and one of kind Want, or what else the Clash says. Without axes, all
// fit.
type Misfit struct {
	Axes       layout.Axes
	Clash      Clash
	Have, Want layout.Kind
}

// Fit returns the types of the output of an operation that is not on integers, and the first thing that does not fit. constant says that no
// gradient flows through it.
func (s *Inputs) Fit(c Class, constant bool, in []Operand) (layout.Types, Misfit) {
	if constant {
		s.i, s.r = 0, 0
	}
	m := first(
		Misfit{s.i & s.v, ClashRows, layout.Invariant, layout.Varying},
		Misfit{s.i & s.c, ClashFeatures, layout.Invariant, layout.Cut},
		Misfit{s.i & s.o, ClashOwn, layout.Invariant, layout.Own},
		Misfit{s.v & s.c, ClashRowsFeatures, layout.Varying, layout.Cut},
		Misfit{s.i & s.r, ClashOnce, layout.Invariant, layout.Replicated},
		Misfit{s.i & s.p, ClashOnce, layout.Invariant, layout.Partial})
	if m.Axes == 0 && s.p != 0 {
		m = s.FitSums(c, in)
	}
	return s.Types(), m
}

// FitSums returns the first thing that does not fit a partial sum.
func (s *Inputs) FitSums(c Class, in []Operand) Misfit {
	m := first(
		Misfit{s.p & s.v, ClashPart, layout.Partial, layout.Varying},
		Misfit{s.p & s.c, ClashPart, layout.Partial, layout.Cut},
		Misfit{s.p & s.o, ClashPart, layout.Partial, layout.Own})
	if m.Axes == 0 {
		m = s.linear(c, in)
	}
	return m
}

func first(list ...Misfit) Misfit {
	for _, m := range list {
		if m.Axes != 0 {
			return m
		}
	}
	return Misfit{}
}

// linear looks whether the operation is linear in its partial inputs: else its result is not a part of the result for the sum.
func (s *Inputs) linear(c Class, in []Operand) Misfit {
	sum := func(i int) layout.Axes { return in[i].Types.On(layout.Partial) }
	bad, summands := layout.Axes(0), uint8(0) // inputs that are added up
	switch c {
	case Linear:
		summands = 255
	case Multilinear:
		a, b := sum(0), sum(1)
		if m := first(Misfit{a & b, ClashProduct, layout.Partial, layout.Partial},
			Misfit{s.p &^ (a | b), ClashAdded, layout.Partial, layout.Replicated}); m.Axes != 0 {
			return m
		}
		summands = 255 &^ 3
	case Indexed:
		bad, summands = sum(1), 1|4
	case Selects:
		bad, summands = sum(0), 2|4
	case Ratio:
		bad = sum(1)
	default:
		bad = s.p
	}
	if bad != 0 {
		return Misfit{bad, ClashNonlinear, layout.Partial, layout.Partial}
	}
	for i, x := range in {
		if a := s.p &^ sum(i); a != 0 && !x.None && summands>>i&1 != 0 && !x.Zeros {
			return Misfit{a, ClashAdded, layout.Partial, layout.Replicated}
		}
	}
	return Misfit{}
}
