package tensor

// Class says how an operation treats sums: what it may do with a tensor that is Partial, whose value is the sum over the ranks.
type Class uint8

// The classes.
const (
	ClassNonlinear   Class = iota // it must have the sum; this is safe for every operation
	ClassLinear                   // in all its inputs together: all of them are partial, or none
	ClassMultilinear              // in each of inputs 0 and 1; further ones are added
	ClassIndexed                  // in input 0, and in input 2 if there is one; input 1 has indices
	ClassSelects                  // in inputs 1 and 2, of which input 0 selects elements
	ClassRatio                    // in input 0, which it divides by input 1
	classAux                      // WithAux
)

// inputAxes is what the inputs of an operation are: the axes on which one of them is varying, cut, own, partial, invariant or replicated.
// same is what no gradient flows into and is the same on all ranks: it fits invariant and replicated inputs alike.
type inputAxes struct{ v, c, o, p, i, r, same Axes }

func (s *inputAxes) add(h *header) {
	b0, b1, b2 := h.ty.b0, h.ty.b1, h.ty.b2
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

// types returns what is made of such inputs where they fit: own of own, else cut, varying, partial or invariant of what is so.
func (s *inputAxes) types() Types { return Types{(s.v | s.c | s.i) &^ s.o, s.p | s.i, s.c | s.o} }

// clash returns the axes on which inputs may not fit.
func (s *inputAxes) clash() Axes { return s.i&(s.v|s.c|s.o|s.p|s.r) | s.v&s.c | s.p }

// mustFit panics with a *Failure where the inputs of an operation do not fit.
func (op Op) mustFit(out *header, in []*header, s *inputAxes) {
	if ops[op].Class == classAux { // WithAux has looked at the loss
		out.ty = in[0].ty
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

// mustBeLinear panics with a *Failure where an operation would make of partial sums what is not a part of their sum's result.
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
		if h != nil && summands>>i&1 != 0 {
			op.clash(in, s.p&^h.ty.On(Partial), ClashAdded, Partial, Replicated)
		}
	}
}

// sumType types a sum over the dimensions in mask: of all elements, or of the rows of the batch.
func (t *Tape) sumType(out, in *header, mask int) {
	switch {
	case in.rank == 0:
	case mask == 1<<in.rank-1:
		out.ty = out.ty.With(in.ty.On(Varying)|in.ty.On(Cut), Partial)
	case mask&1 != 0 && t.rows.n > 0 && in.dims[0]%t.rows.n == 0:
		out.ty = out.ty.With(in.ty.On(Varying)&t.rows.Over, Partial)
	}
}

// meanType types a mean that was made of a sum: what the sum made partial is this rank's own.
func (h *header) meanType(in *header) {
	h.ty = h.ty.With(h.ty.On(Partial)&^in.ty.On(Partial), Own)
}

// lossType types a loss, which is a sum over rows, divided by their number in the global batch.
func (t *Tape) lossType(out *header) { out.ty = out.ty.With(out.ty.On(Varying)&t.rows.Over, Partial) }

// mustPlace panics with a *Failure where random numbers for the elements of x would be the same on ranks that hold others. A rank
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
		clash(op, []*header{x}, bad, ClashMask, x.ty.At(bad.first()), Replicated)
	}
}

// mustNotShift panics with a *Failure where a constant would be added to a partial sum.
func (t *Tape) mustNotShift(op Op, x *header) {
	if t.recording() {
		op.clash([]*header{x}, x.ty.On(Partial), ClashAdded, Partial, Replicated)
	}
}

// mustSeed panics with a *Failure unless gradients are to be those of the sum of h over the job: h must be a part of that sum, or the
// same on all ranks with a gradient that is so.
func mustSeed(op string, h *header) {
	if bad := ^h.ty.b1; bad != 0 && h.needs {
		clash(op, []*header{h}, bad, ClashLoss, h.ty.At(bad.first()), Partial)
	}
}

// askTypes asks a Function what its outputs are, before it communicates: what does not fit is refused on each rank alone.
func (t *Tape) askTypes(f Function, c *Ctx, in []*header) {
	typed, ok := f.(Typed)
	if c.types = c.types[:0]; !ok {
		return
	}
	out, err := typed.Types(t.showTypes(in, Invariant), t.rows.Over)
	if err != nil {
		if again, e := typed.Types(t.showTypes(in, Replicated), t.rows.Over); e == nil {
			out, err = again, nil
		}
	}
	if err != nil {
		failTypes(f.Name(), in, err)
	}
	if c.types = append(c.types, out...); len(out) == 0 {
		fail(f.Name(), nil, "Types gives no types")
	}
}

// applyTypes types the outputs of a Function.
func (c *Ctx) applyTypes(y *header, in []*header) {
	if len(c.types) == 0 {
		var s inputAxes
		for _, h := range in {
			s.add(h)
		}
		if y.ty = s.types(); s.clash() != 0 {
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

// showTypes returns the types of inputs as a Function sees them. What no gradient flows into and is the same on all ranks is k.
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
