package tensor

import (
	"slices"

	"github.com/ringo-ml/ringo/layout"
)

// Class says how an operation treats a Partial tensor, whose value is the sum over the ranks.
type Class uint8

// The classes.
const (
	ClassNonlinear   Class = iota // not linear: it needs the sum; this is safe for every operation
	ClassLinear                   // linear in all inputs together: all of them are partial, or none
	ClassMultilinear              // linear in each of inputs 0 and 1; further inputs are added
	ClassIndexed                  // linear in input 0, and in input 2 if there is one; input 1 has indices
	ClassSelects                  // linear in inputs 1 and 2; input 0 selects elements from them
	ClassRatio                    // linear in input 0, which it divides by input 1
	classAux                      // WithAux
)

// inputAxes holds, for each kind, the axes on which an input of an operation is of that kind. same has those of inputs without a gradient
// that are the same on all ranks: they fit invariant and replicated inputs alike.
type inputAxes struct{ v, c, o, p, i, r, same Axes }

// addIndex is add for an input that may choose elements: what is this rank's own among the indices picks rows of this rank.
func (s *inputAxes) addIndex(h *header) {
	own := h.ty.On(Own) | h.ty.On(Partial)
	was := h.ty
	h.ty = h.ty.With(own, Varying)
	s.add(h)
	h.ty = was
}

func (s *inputAxes) add(h *header) {
	b0, b1, b2 := h.ty.Bits()
	s.v |= b0 &^ (b1 | b2)
	s.c |= b0 & b2
	s.o |= b2 &^ b0
	s.p |= b1 &^ b0
	if h.needs {
		s.i |= b0 & b1
		s.r |= ^(b0 | b1 | b2)
	} else {
		s.same |= ^(b0 ^ b1 | b2)
	}
}

// types returns the types of the output, if the inputs fit: own if an input is own, else cut, varying, partial or invariant.
func (s *inputAxes) types() Types { return layout.TypesOf((s.v|s.c|s.i)&^s.o, s.p|s.i, s.c|s.o) }

// clash returns the axes on which inputs may not fit.
func (s *inputAxes) clash() Axes { return s.i&(s.v|s.c|s.o|s.p|s.r) | s.v&s.c | s.p }

// mustFit panics with a *Failure where the inputs of an operation do not fit.
func (op Op) mustFit(out *header, in []*header, s *inputAxes) {
	if ops[op].Class == classAux { // WithAux has looked at the loss
		if out.ty = in[0].ty; !in[0].needs { // the output does, for the sake of the loss
			out.ty = out.ty.With(out.ty.On(Replicated), Invariant)
		}
		return
	}
	if noFloats(out, in) { // counts and positions: what mixes them is this rank's own
		if s.p&(s.v|s.c|s.o|s.i|s.r|s.same) != 0 || ops[op].Class != ClassLinear {
			s.p, s.o = 0, s.o|s.p
		}
		out.ty = s.types()
		return
	}
	if ops[op].Const { // no gradient flows through it
		s.i, s.r = 0, 0
		out.ty = s.types()
	}
	op.clash(in, s.i&s.v, ClashRows, Invariant, Varying)
	op.clash(in, s.i&s.c, ClashFeatures, Invariant, Cut)
	op.clash(in, s.i&s.o, ClashOwn, Invariant, Own)
	op.clash(in, s.v&s.c, ClashRowsFeatures, Varying, Cut)
	op.clash(in, s.i&s.r, ClashOnce, Invariant, Replicated)
	op.clash(in, s.i&s.p, ClashOnce, Invariant, Partial)
	op.clash(in, s.p&s.v, ClashPart, Partial, Varying)
	op.clash(in, s.p&s.c, ClashPart, Partial, Cut)
	op.clash(in, s.p&s.o, ClashPart, Partial, Own)
	if s.p != 0 {
		op.mustBeLinear(in, s)
	}
}

// noFloats reports whether an operation is on integers.
func noFloats(out *header, in []*header) bool {
	return !out.dtype.IsFloat() && !slices.ContainsFunc(in, func(h *header) bool { return h != nil && h.dtype.IsFloat() })
}

// mustBeLinear panics with a *Failure if the operation is not linear in its partial inputs: its result would not be a part of the result
// for the sum.
func (op Op) mustBeLinear(in []*header, s *inputAxes) {
	var summands uint8 // inputs that are added up
	switch p := s.p; ops[op].Class {
	case ClassLinear:
		summands = 255
	case ClassMultilinear:
		a, b := in[0].ty.On(Partial), in[1].ty.On(Partial)
		op.clash(in, a&b, ClashProduct, Partial, Partial)
		op.clash(in, p&^(a|b), ClashAdded, Partial, Replicated)
		summands = 255 &^ 3
	case ClassIndexed:
		op.clash(in, in[1].ty.On(Partial), ClashNonlinear, Partial, Partial)
		summands = 1 | 4
	case ClassSelects:
		op.clash(in, in[0].ty.On(Partial), ClashNonlinear, Partial, Partial)
		summands = 2 | 4
	case ClassRatio:
		op.clash(in, in[1].ty.On(Partial), ClashNonlinear, Partial, Partial)
	default:
		op.clash(in, p, ClashNonlinear, Partial, Partial)
	}
	for i, h := range in {
		if h != nil && summands>>i&1 != 0 && h.at.Flat() != layout.Zeros {
			op.clash(in, s.p&^h.ty.On(Partial), ClashAdded, Partial, Replicated)
		}
	}
}

// meanType sets the types of a mean, made from a sum: where the sum is partial, the mean is of this rank's rows only (Own).
func (h *header) meanType(in *header) {
	if a := h.ty.On(Partial) &^ in.ty.On(Partial); a != 0 {
		if h.ty = h.ty.With(a, Own); h.tape.ownWhy == "" {
			h.tape.ownWhy = "mean, over this rank's rows"
		}
	}
}

// mustPlace panics with a *Failure if the random numbers for the elements of x would be the same on ranks that hold other elements. A rank
// without rows has no elements.
func (t *Tape) mustPlace(op string, x *header, at Region) {
	var bad Axes
	if at.Rows.Total == 0 {
		bad = x.ty.On(Varying) &^ t.rows.Over
	}
	if at.Cols.Total == 0 {
		bad |= x.ty.On(Cut)
	}
	if bad != 0 && x.n > 0 && t.recording() {
		clash(op, []*header{x}, bad, ClashMask, x.ty.At(bad.First()), Replicated)
	}
}

// countOnce returns the operands of an elementwise operation, of which one counts on the first rank alone where types ask for it.
func (t *Tape) countOnce(op Op, a, b *header) (*header, *header) {
	if a.needs && b.needs {
		a, b = t.gradOnce(a, b.ty.On(Invariant)), t.gradOnce(b, a.ty.On(Invariant))
	}
	if p, q := a.ty.On(Partial), b.ty.On(Partial); p != q && (op == OpAdd || op == OpSub) {
		a, b = t.once(a, q), t.once(b, p)
	}
	return a, b
}

// once returns h, which is to be added to a partial sum over axes. If it is the same on all ranks there, such as a penalty of the weights,
// it counts on the first one alone: so the sum over the ranks has it once. The gradient of an invariant loss is the same on all ranks, as
// that of a partial sum is.
func (t *Tape) once(h *header, axes Axes) *header {
	axes &^= h.ty.On(Partial)
	whole := axes & h.ty.On(Invariant)
	one, ok := t.first(axes)
	if !ok || axes&h.ty.Differ() != 0 || h.needs && whole != 0 && h.n > 1 || !h.dtype.IsFloat() || h.at.Flat() == layout.Zeros {
		return h
	}
	grad, _ := t.first(axes &^ whole)
	return t.weigh(h, one, grad, axes, Partial)
}

// gradOnce returns h, which is to meet what counts its gradient once along axes. If h is a number whose gradient is added up over the
// ranks, such as a penalty or a temperature, all have the same gradient, and that of the first one counts.
func (t *Tape) gradOnce(h *header, axes Axes) *header {
	axes &= h.ty.On(Replicated)
	if one, ok := t.first(axes); ok && h.n == 1 && h.needs {
		return t.weigh(h, 1, one, axes, Invariant)
	}
	return h
}

// weigh returns h times value, whose gradient is multiplied by grad, as a tensor of kind k along axes.
func (t *Tape) weigh(h *header, value, grad float64, axes Axes, k Kind) *header {
	in := t.contiguous(h)
	out := t.newLike(in)
	t.affine(out, in, value, 0)
	if n := t.rec(OpAffine, out, in); n != nil {
		n.F[0], n.F[1], n.I[0] = grad, 0, 0
		if k == Partial && in.n == 1 && t.compares() && t.dev.Host() {
			n.F[1], n.F[2] = in.tensor().Item(), value
		}
	}
	out.ty = out.ty.With(axes, k)
	return out
}

// first returns 1 if this rank is the first along all of axes, else 0. ok is false if axes are none, or no batch says it.
func (t *Tape) first(axes Axes) (one float64, ok bool) {
	var head, tail Axes
	for i := range t.known {
		head, tail = head|t.known[i].Head, tail|t.known[i].Tail
	}
	if axes&tail != 0 {
		return 0, true
	}
	return 1, axes != 0 && axes&^head == 0
}

// shift returns what this rank adds to x, where all ranks together add b.
func (t *Tape) shift(x *header, b float64) float64 {
	one, ok := t.first(x.ty.On(Partial))
	if !ok && t.recording() {
		OpAffine.clash([]*header{x}, x.ty.On(Partial), ClashAdded, Partial, Replicated)
		return b
	}
	return one * b
}

// mustSeed panics with a *Failure unless h can be a loss: a part of the sum over the job, or the same on all ranks with the same gradient.
func mustSeed(op string, h *header) {
	if bad := ^(h.ty.On(Partial) | h.ty.On(Invariant)); bad != 0 && h.needs {
		clash(op, []*header{h}, bad, ClashLoss, h.ty.At(bad.First()), Partial)
	}
}

// askTypes calls Types of a Function before the Function communicates. So every rank finds an error on its own, and none waits for another.
func (t *Tape) askTypes(f Function, c *Ctx, in []*header) {
	c.types = c.types[:0]
	if typed, ok := f.(Typed); ok {
		c.types = append(c.types, t.typesOf(f.Name(), typed, in)...)
	}
}

// typesOf returns the types of a Function's outputs; none if they do not fit where nothing is refused (see applyTypes).
func (t *Tape) typesOf(op string, typed Typed, in []*header) []Types {
	out, err := typed.Types(t.showTypes(in, Invariant), t.rows.Over)
	if err != nil {
		if again, e := typed.Types(t.showTypes(in, Replicated), t.rows.Over); e == nil {
			out, err = again, nil
		}
	}
	switch {
	case err != nil && (t.noGrad || t.idle()):
		return nil
	case err != nil:
		t.failTypes(op, in, err)
	case len(out) == 0:
		fail(op, nil, "Types gives no types")
	}
	return out
}

// applyTypes sets the types of a Function's outputs.
func (c *Ctx) applyTypes(y *header, in []*header) {
	if len(c.types) == 0 {
		var s inputAxes
		for _, h := range in {
			s.add(h)
		}
		if y.ty = s.types(); s.clash() != 0 && c.t.recording() {
			OpApply.mustFit(y, in, &s)
		}
		for _, o := range c.outs {
			o.ty = y.ty
		}
		return
	}
	if len(c.types) != 1+len(c.outs) {
		fail(c.f.Name(), nil, "Types gives %d types for %d outputs", len(c.types), 1+len(c.outs))
	}
	y.ty = c.types[0]
	for i, o := range c.outs {
		o.ty = c.types[1+i]
	}
}

// showTypes returns the types of the inputs for a Function. An input without a gradient that is the same on all ranks gets kind k.
func (t *Tape) showTypes(in []*header, k Kind) []Types {
	list := t.shown[:0]
	for _, h := range in {
		ty := h.ty
		if !h.needs {
			ty = ty.With(ty.On(Replicated)|ty.On(Invariant), k)
		}
		list = append(list, ty)
	}
	return list
}

// typeOnly sets types and place on a NoGrad tape, where nothing is refused: what does not fit is this rank's own.
func (t *Tape) typeOnly(op Op, out *header, in []*header) {
	if op == OpApply {
		return
	}
	var s inputAxes
	placed := op == OpBroadcast || ops[op].Rows == RowsSum
	for i, h := range in {
		if h != nil {
			if ops[op].Index>>i&1 == 0 {
				s.add(h)
			} else {
				s.addIndex(h)
			}
			placed = placed || h.at != (place{})
		}
	}
	linear := ops[op].Class == ClassLinear || ops[op].Class == classAux
	if others := s.v | s.c | s.o | s.i | s.r | s.same; s.p != 0 && (!linear || s.p&others != 0) {
		s.p, s.o = 0, s.o|s.p
	}
	if out.ty = s.types(); placed {
		t.locate(op, out, in)
	}
}
