package tensor

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// inputAxes adds up the types of an operation's inputs.
type inputAxes struct{ typing.Inputs }

func (s *inputAxes) add(h *header)      { s.Add(h.ty, h.needs) }
func (s *inputAxes) addIndex(h *header) { s.AddIndex(h.ty, h.needs) }

// mustFit panics with a *Failure where the inputs of an operation do not fit. It sets the types of the output. f is nil, or the Function of
// OpApply.
func (op Op) mustFit(f Function, out *header, in []*header, s *inputAxes) {
	o := &ops[op]
	switch {
	case op == OpAux: // WithAux has looked at the loss
		if out.ty = in[0].ty; !in[0].needs { // the output does, for the sake of the loss
			out.ty = out.ty.With(out.ty.On(Replicated), Invariant)
		}
	case noFloats(out, in): // counts and positions: what mixes them is this rank's own
		out.ty = s.Loose(o.Class)
	default:
		var memory [maxInputs]typing.Operand
		var bad typing.Misfit
		if out.ty, bad = s.Fit(o.Class, o.Const, operands(memory[:0], in)); bad.Axes != 0 {
			name := o.Name
			if f != nil {
				name = f.Name() + ", a Function without Types,"
			}
			clash(name, in, bad)
		}
	}
}

// noFloats reports whether an operation is on integers.
func noFloats(out *header, in []*header) bool {
	return !out.dtype.IsFloat() && !slices.ContainsFunc(in, func(h *header) bool { return h != nil && h.dtype.IsFloat() })
}

// meanType sets the types of a mean, made from a sum: where the sum is partial, the mean is of this rank's rows only (Own).
func (h *header) meanType(in *header) {
	if a := h.ty.On(Partial) &^ in.ty.On(Partial); a != 0 {
		if h.ty = h.ty.With(a, Own); h.tape.ownWhy == "" {
			h.tape.ownWhy = "mean, over this rank's rows"
		}
	}
}

// mustSeparateRandom panics with a *Failure if the random numbers for the elements of x would be the same on ranks that hold other
// elements. A rank without rows has no elements.
func (t *Tape) mustSeparateRandom(op string, x *header, at Region) {
	var bad Axes
	if at.Rows.Total == 0 {
		bad = x.ty.On(Varying) &^ t.rows.Over
	}
	if at.Cols.Total == 0 {
		bad |= x.ty.On(Cut)
	}
	if bad != 0 && x.n > 0 && t.records() {
		clash(op, these(x), typing.Misfit{Axes: bad, Clash: typing.ClashMask, Have: x.ty.At(bad.First()), Want: Replicated})
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
	if !ok && t.records() {
		clash("affine", these(x), typing.Misfit{Axes: x.ty.On(Partial), Clash: typing.ClashAdded, Have: Partial, Want: Replicated})
		return b
	}
	return one * b
}

// mustSeed panics with a *Failure unless h can be a loss: a part of the sum over the job, or the same on all ranks with the same gradient.
func mustSeed(op string, h *header) {
	if bad := ^(h.ty.On(Partial) | h.ty.On(Invariant)); bad != 0 && h.needs {
		clash(op, these(h), typing.Misfit{Axes: bad, Clash: typing.ClashLoss, Have: h.ty.At(bad.First()), Want: Partial})
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
	case err != nil && (t.noGrad || t.hasNoRows()):
		return nil
	case err != nil:
		t.failTypes(op, in, err)
	case len(out) == 0:
		fail(op, nil, "Types gives no types")
	}
	return out
}

// warned has the names of Functions of which warnOfPart has said something, and the Scales of which warnOfScale has.
var warned sync.Map

// warnOfPart says once that nothing checks what a Function without Types does with a part of the features.
func (c *Ctx) warnOfPart(in []*header) {
	i := slices.IndexFunc(in, func(h *header) bool { return h.ty.On(Cut) != 0 })
	if i < 0 || !c.t.records() {
		return
	}
	if _, again := warned.LoadOrStore(c.f.Name(), true); !again {
		slog.Warn(fmt.Sprintf("tensor: %s is given a part of the features, %v, and has no Types: if it reads more than one feature for each "+
			"that it returns, such as a norm, gradients are wrong and nothing checks it. Give it Types(in, rows), which returns an error then, or "+
			"in[:1] where it reads one alone", c.f.Name(), in[i].tensor().Shape()))
	}
}

// applyTypes sets the types of a Function's outputs.
func (c *Ctx) applyTypes(y *header, in []*header) {
	if len(c.types) == 0 {
		var s inputAxes
		for _, h := range in {
			s.add(h)
		}
		if y.ty = s.Types(); s.Suspects() != 0 && c.t.records() {
			OpApply.mustFit(c.f, y, in, &s)
		}
		c.warnOfPart(in)
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

// typeOnly sets types and place on a NoGrad tape, where only parts of features are refused: what else does not fit is this rank's own.
func (t *Tape) typeOnly(op Op, out *header, in []*header) {
	if op == OpApply {
		return
	}
	var s inputAxes
	sums := Axes(0)
	placed := op == OpBroadcast || ops[op].Rows == RowsSum
	for i, h := range in {
		if h != nil {
			t.parts |= h.ty.On(Cut)
			sums |= h.ty.On(Partial)
			if ops[op].Index>>i&1 == 0 {
				s.add(h)
			} else {
				s.addIndex(h)
			}
			placed = placed || h.at != (place{})
		}
	}
	if sums &= t.parts &^ t.rows.Over; sums != 0 && !noFloats(out, in) {
		op.mustSum(in, sums)
	}
	if out.ty = s.Loose(ops[op].Class); placed {
		t.locate(op, out, in)
	}
}

// mustSum panics with a *Failure where in has sums over parts of the features, along axes, which op needs whole. Of sums over rows, a rank
// without gradients may do what it likes with its own.
func (op Op) mustSum(in []*header, axes Axes) {
	var s inputAxes
	var memory [maxInputs]typing.Operand
	list := operands(memory[:0], in)
	for i := range list {
		if x := &list[i]; !x.None {
			if x.Types = x.Types.With(^axes, Invariant); ops[op].Index>>i&1 == 0 {
				s.Add(x.Types, false)
			} else {
				s.AddIndex(x.Types, false)
			}
		}
	}
	clash(ops[op].Name, in, s.FitSums(ops[op].Class, list))
}
