package tensor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// operands appends to list what the rules of types see of in.
func operands(list []typing.Operand, in []*header) []typing.Operand {
	for _, h := range in {
		if h == nil {
			list = append(list, typing.Operand{None: true})
		} else {
			list = append(list, typing.Operand{Types: h.ty, Grad: h.needs, Zeros: h.at.Flat() == layout.Zeros})
		}
	}
	return list
}

// kinds lists the kinds of the inputs.
func kinds(in []*header, axis int) string { return typing.Kinds(named(in), axis) }

// named is operands with their names, for errors.
func named(in []*header) []typing.Operand {
	list := operands(nil, in)
	for i, h := range in {
		if h != nil {
			list[i].Name = h.label(i)
		}
	}
	return list
}

// clash panics with a *Failure if inputs do not fit along an axis.
func clash(op string, in []*header, m typing.Misfit) {
	if m.Axes == 0 || slices.ContainsFunc(in, func(h *header) bool { return h != nil && h.tape != nil && h.tape.hasNoRows() }) {
		return
	}
	e := m.Error(named(in))
	if m.Clash == typing.ClashLoss && m.Have == Own {
		e.Text += in[0].tape.why()
	}
	if m.Clash == typing.ClashPart || m.Clash == typing.ClashNonlinear {
		if slices.ContainsFunc(in, func(h *header) bool { return h != nil && h.needs && h.ty.On(Partial) != 0 && h.tape.scatters(h) }) {
			e.Text += "; messages for this rank's rows, of graphs that it has whole, have these rows: tensor.RowsLike(added, rows)"
		}
	}
	failWith(op, in, e)
}

// mustBeWhole panics with a *Failure if x is a part of the features, also on a NoGrad tape: a teacher's ArgMax over a part of the words
// would be labels that no loss can tell from right ones.
func mustBeWhole(op string, x *header) {
	if bad := x.ty.On(Cut); bad != 0 && x.tape != nil && x.tape.typing() {
		clash(op, these(x), typing.Misfit{Axes: bad, Clash: typing.ClashWhole, Have: Cut, Want: Invariant})
	}
}

// failTypes panics with a *Failure: a Function does not accept the types of its inputs.
func (t *Tape) failTypes(op string, in []*header, err error) {
	var k *layout.KindError
	if errors.As(err, &k) {
		e := &typing.Error{Axis: k.Axis, Clash: typing.ClashInput, Have: k.Have, Want: k.Want}
		err, e.Text = e, fmt.Sprintf("an input is %v, must be %v%s", k.Have, k.Want, kinds(in, k.Axis))
		if k.Have == Own {
			e.Text += t.why() + "; rows that TopK or Sort chose stay rows, and can be gathered, if they are taken by their indices " +
				"(ops.Gather(x, 0, at), ops.Embedding(x, at))"
		}
	}
	failWith(op, in, err)
}

// madeOf says where what is this rank's own came from, if h is.
func (h *header) madeOf() string {
	if h.ty.On(Own) == 0 {
		return ""
	}
	return h.tape.why()
}

func (t *Tape) why() string {
	switch {
	case t.ownWhy == "":
		return ""
	case t.rows.N == 1:
		return "; it came from " + t.ownWhy + " (if a Reshape could put its only row into two dimensions, write -1 for the right one)"
	}
	return "; it came from " + t.ownWhy
}

// label names an input: by its parameter, or by its number.
func (h *header) label(i int) string {
	switch {
	case h.isLeaf():
		return "parameter " + h.base.p.String()
	case h.st.wholeName() != "":
		return fmt.Sprintf("input %d (of %s)", i, h.st.wholeName())
	}
	return fmt.Sprintf("input %d", i)
}
