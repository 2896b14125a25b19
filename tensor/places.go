package tensor

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// RowsRule says how an operation treats the dimensions that hold the rows of the batch, or positions.
type RowsRule uint8

// The rules.
const (
	RowsEach     RowsRule = iota // each element by itself, with inputs broadcast from the right
	RowsLast                     // not linear along the last dimension, which the output may lack
	RowsFirst                    // each element of dimension 0 by itself
	RowsPaired                   // RowsFirst, of the same elements of all inputs; inputs 1 and 2 have them
	RowsSum                      // the sum of something over all rows
	RowsAs0                      // as input 0
	RowsByCaller                 // the operation says it, which knows its attributes: see Tape.NotAlong
	RowsPicked                   // RowsByCaller; input 1 picks from input 0, along the dimension that is I[0] of the node
	RowsAdded                    // RowsByCaller; input 2 is added to input 0 where input 1 says, along the dimension that is I[0] of the node
	RowsTurned                   // as input 0, whose elements are changed by a table of all positions, which are in dimension 1
	rowsLinear                   // a product with the last dimension of input 0, along dimension 1 of input 1
)

var builtinRows = [MaxOps]RowsRule{
	OpAux: RowsAs0, OpCopy: RowsAs0, OpApply: RowsByCaller, OpReshape: RowsByCaller, OpPermute: RowsByCaller, OpSlice: RowsByCaller,
	OpConcat: RowsByCaller, OpSum: RowsByCaller, OpMatMul: RowsByCaller, OpSecond: RowsByCaller,
	OpLinear: rowsLinear, OpLinearAct: rowsLinear, OpLinearAdd: rowsLinear,
}

// place is where the rows are in a header.
type place = layout.Place

// know returns the number of a batch for places: the same number for the same batch. The last number is used again.
func (t *Tape) know(b batch) uint8 {
	for i := range t.known {
		if t.known[i] == b {
			return uint8(i + 1)
		}
	}
	if len(t.known) == 255 {
		t.known[254] = b
		return 255
	}
	t.known = append(t.known, b)
	return uint8(len(t.known))
}

// batchAt returns the batch of a place; that of the step if it has none.
func (t *Tape) batchAt(p place) *batch {
	if p.Of == 0 {
		return &t.rows
	}
	return &t.known[p.Of-1]
}

// Uneven reports whether dimension dim of x has rows of a batch which ranks along axes share, and have not equally many. This rank is
// number rank of them. If the batch is divided in order of the ranks, all see the same.
func (c *Ctx) Uneven(x Tensor, dim int, axes Axes, rank, ranks int) bool {
	at := x.hdr().at
	if at.Of == 0 || at.Rows().Dims()>>dim&1 == 0 {
		return false
	}
	b := c.t.batchAt(at)
	return b.Over == axes && (b.N*ranks != b.Total || b.First != b.N*rank)
}

func (t *Tape) operand(h *header) layout.Operand {
	o := layout.Operand{Place: h.at, Dims: h.dims[:h.ndim]}
	if h.at.Of != 0 {
		o.Batch = &t.known[h.at.Of-1]
	}
	return o
}

// placeInput gives an input its place: rows are in dimension 0 and positions in dimension 1.
func (t *Tape) placeInput(h *header, b batch) {
	rows, seq := layout.NewSpot(1, layout.Exact, 1), layout.Spot{}
	if b.Positions > 0 {
		seq = layout.NewSpot(2, layout.Exact, 1)
	}
	h.at = place{Of: t.know(b)}.With(rows, seq)
}

// hasNoRows reports whether this rank has no rows of the batch. In tensors without elements, Reshape cannot tell where rows are, so nothing
// is refused: the ranks with rows check the program.
func (t *Tape) hasNoRows() bool { return t.rows.Stride != 0 && t.rows.N == 0 }

// typing reports whether operations get types. On a NoGrad tape they do, and nothing is refused.
func (t *Tape) typing() bool { return !(t.quiet || t.inBackward && !t.recompute) }

// variesOver returns the axes along which x has other rows on each rank, or with seq other positions.
func (x *header) variesOver(b *batch, seq bool) Axes {
	if seq {
		return x.ty.On(Varying) & b.SeqOver
	}
	return x.ty.On(Varying) &^ b.SeqOver
}

// variesOn returns the axes along which x has other rows on each rank, other positions, or both.
func (x *header) variesOn(b *batch, rows, seq bool) (a Axes) {
	if rows {
		a |= x.variesOver(b, false)
	}
	if seq {
		a |= x.variesOver(b, true)
	}
	return a
}

// own makes x this rank's own along the axes of rows, or of positions: it was made of those of this rank in a way that has no meaning for
// the sum over ranks.
func (t *Tape) own(op string, x *header, b *batch, rows, seq bool, why string) {
	a := x.variesOn(b, rows, seq)
	if x.ty = x.ty.With(a, Own); a != 0 && t.ownWhy == "" && x.dtype.IsFloat() {
		t.ownWhy = op + ", " + why
	}
}

// summed makes x a partial sum along the axes of rows, or of positions.
func (x *header) summed(b *batch, rows, seq bool) {
	x.ty = x.ty.With(x.variesOn(b, rows, seq), Partial)
}

// locate sets the place of an operation's output.
func (t *Tape) locate(op Op, out *header, in []*header) {
	switch x, o := in[0], &ops[op]; o.Rows {
	case RowsEach:
		t.each(o.Name, out, in)
	case RowsLast:
		t.notAlong(o.Name, out, x, int(x.ndim)-1, out.ndim < x.ndim)
	case RowsFirst, RowsPaired:
		t.byFirst(op, out, in)
	case RowsSum:
		out.ty, out.at = out.ty.With(out.ty.On(Varying), Partial), place{}
	case RowsAs0:
		out.at = x.at
	case RowsTurned:
		if out.at = x.at; x.at.Of == 0 {
			out.at = layout.Constant(0, 0).WithCut(x.at.Cut())
		} else if in[1].at.Of == 0 && x.at.Rows().Dims()&2 != 0 && t.batchAt(x.at).N > 1 {
			t.own(o.Name, out, t.batchAt(x.at), true, false, "whose positions are this rank's rows: if they are those of sequences, the table "+
				"belongs to rows, too (Tensor.WithRows, before Reshape)")
		}
	case rowsLinear:
		t.linearPlace(o.Name, out, in)
	}
}

// each sets the place of an operation that works on each element of its inputs, broadcast to out.
func (t *Tape) each(op string, out *header, in []*header) {
	x := in[0]
	last := in[len(in)-1]
	if len(in) < 3 && x.ndim == out.ndim && x.n == out.n && (last == x || last != nil && last.at == x.at && x.at.Ordered() && last.alike(x)) {
		out.at = x.at.Changed() // rows meet themselves
		return
	}
	var held bool
	acc := layout.Operand{Dims: out.dims[:out.ndim]}
	rows, seq := true, true
	flat := uint8(255)
	first := t.withPositions(in)
	for i := range in {
		h := in[(first+i)%len(in)]
		if h == nil {
			continue
		}
		if h.at.Of == 0 {
			held = true
			flat &= h.at.Flat()<<(out.ndim-h.ndim) | stretched(out, h)
			if len(in) > 1 || h.at.Cut() == 0 {
				acc.Place = acc.Place.WithCut(acc.Place.Cut() | h.at.Cut()<<(out.ndim-h.ndim))
				continue
			}
		}
		o := t.operand(h)
		if i > 0 && h.at == acc.Place && h.alike(out) {
			continue
		}
		p, r, s := layout.Meet(&acc, &o, int(out.ndim))
		rows, seq = rows && r, seq && s
		acc.Place, acc.Batch = p, nil
		if p.Of != 0 {
			acc.Batch = t.batchAt(p)
		}
	}
	if acc.Place.Cut() != 0 {
		t.mustFitParts(op, out, in, acc.Place.Cut())
	}
	if out.at = acc.Place; out.at.Of == 0 {
		id := 0
		if len(in) == 1 {
			id = x.at.ID()
		}
		out.at = layout.Constant(flat&layout.Repeated, uint16(id)).WithCut(acc.Place.Cut())
		return
	}
	if held {
		t.mustNotHold(op, out, in)
		if t.compares() {
			t.noteSame(out, in)
		}
	}
	if !rows || !seq {
		t.own(op, out, acc.Batch, !rows, !seq, "where other rows of this rank meet")
	}
}

// withPositions returns the first input whose rows are parts of sequences; 0: none. Others may have a number for each of its rows.
func (t *Tape) withPositions(in []*header) int {
	return max(0, slices.IndexFunc(in, func(h *header) bool { return h != nil && h.at.Of != 0 && t.batchAt(h.at).SeqOver != 0 }))
}

// mustFitParts panics with a *Failure if parts of the features meet other parts of them, or a constant with an element for each of this
// rank's. cut has the dimensions of out that ranks have parts of.
func (t *Tape) mustFitParts(op string, out *header, in []*header, cut uint8) {
	var first *header // with parts
	for i, h := range in {
		if h == nil || !t.records() {
			continue
		}
		by := int(out.ndim) - int(h.ndim)
		if own := h.at.Cut() << by; own != 0 {
			if first == nil {
				first = h
			}
			mustBeAlong(op, h, first, own, first.at.Cut()<<(out.ndim-first.ndim))
			continue
		}
		for d := range int(h.ndim) {
			if !h.needs && cut>>(d+by)&1 != 0 && h.dims[d] > 1 && h.dims[d] == out.dims[d+by] && h.at.Flat()>>d&1 == 0 {
				t.failHeld(op, in, i, d, out.ty.On(Cut), h.dims[d], "features")
			}
		}
	}
}

// mustBeAlong panics with a *Failure if ranks have parts of one dimension of x and of another one of y, whose products are blocks alone.
func mustBeAlong(op string, x, y *header, ofX, ofY uint8) {
	if ofX&^ofY != 0 && ofY&^ofX != 0 && x.ty.On(Cut)&y.ty.On(Cut) != 0 {
		mustBeWhole(op, x)
	}
}

// stretched returns the dimensions of out along which x is repeated.
func stretched(out, x *header) (mask uint8) {
	by := int(out.ndim) - int(x.ndim)
	for d := range int(out.ndim) {
		if out.dims[d] > 1 && (d < by || x.dims[d-by] == 1) {
			mask |= 1 << d
		}
	}
	return mask
}

// mustNotHold panics with a *Failure if an input that is the same on all ranks has an element for each of this rank's rows, or positions.
func (t *Tape) mustNotHold(op string, out *header, in []*header) {
	b := t.batchAt(out.at)
	for i, h := range in {
		if h == nil || h.at.Of != 0 || !t.records() {
			continue
		}
		t.refuseHeld(op, in, i, out, out.at.Rows(), out.variesOver(b, false), "rows")
		t.refuseHeld(op, in, i, out, out.at.Seq(), out.variesOver(b, true), "positions")
	}
}

func (t *Tape) refuseHeld(op string, in []*header, i int, out *header, s layout.Spot, axes Axes, what string) {
	h := in[i]
	if s.Mode() == layout.Loose {
		return
	}
	for d := range int(h.ndim) {
		if k := d + int(out.ndim) - int(h.ndim); s.Dims()>>k&1 != 0 && h.dims[d] > 1 && h.at.Flat()>>d&1 == 0 {
			t.failHeld(op, in, i, d, axes, h.dims[d], what)
		}
	}
}

// notAlong sets the place of an operation that is not linear along dimension d of x, which the output lacks if lost.
func (t *Tape) notAlong(op string, out, x *header, d int, lost bool) {
	out.at = x.at.Changed()
	if d < 0 || (x.at.Dims()|x.at.Cut())>>d == 0 { // nothing is there, or behind it
		return
	}
	p, rows, seq, cut := x.at.Reduce(1<<d, int(x.ndim))
	switch {
	case cut.Some:
		mustBeWhole(op, x)
	case lost:
		out.at = p
	case rows.Some || seq.Some:
		out.at = x.at.With(spotIf(!rows.Some, x.at.Rows()), spotIf(!seq.Some, x.at.Seq()))
	}
	if rows.Some || seq.Some {
		t.own(op, out, t.batchAt(x.at), rows.Some, seq.Some, "which is not linear, along this rank's rows")
	}
}

// byFirst sets the place of an operation that works on each element of dimension 0 by itself.
func (t *Tape) byFirst(op Op, out *header, in []*header) {
	x := in[0]
	if x.at.Of == 0 {
		return
	}
	rows, seq := x.at.Rows().Dims() > 1, false
	for i, h := range in[1:] {
		if h == nil || ops[op].Rows != RowsPaired {
			continue
		}
		rows = rows || h.at.Of != 0 && h.at.Rows() != x.at.Rows()
		if h.at.Of == 0 && i < 2 {
			t.mustNotHold(op.String(), x, in[:i+2])
		}
	}
	s := x.at.Seq()
	if s.Dims() != 0 && (s.Dims() != 2 || out.ndim < 2 || out.dims[1] != x.dims[1]) {
		seq = true
	}
	if out.at = x.at; rows || seq {
		t.own(op.String(), out, t.batchAt(x.at), rows, seq, "which mixes rows or positions that are not in dimension 0")
	}
}

// linearPlace sets the place of x·wᵀ + b, and + r.
func (t *Tape) linearPlace(op string, out *header, in []*header) {
	x, w := in[0], in[1]
	last := uint8(1) << (x.ndim - 1)
	cut := x.at.Cut()&^last | w.at.Cut()&1<<(x.ndim-1)
	if x.at.Cut()&last != 0 && w.at.Cut()&2 != 0 {
		t.partsPlace(op, out, in)
	}
	if w.at.Of|x.at.Of == 0 {
		out.at = layout.Constant(x.at.Flat()&(last-1), 0).WithCut(cut)
	} else if w.at.Of == 0 && x.at.Dims()&last == 0 {
		out.at = x.at.WithCut(cut)
	} else if x.ndim > 1 {
		t.contract(op, out, x, w, false, true)
	} else {
		t.own(op, out, t.batchAt(x.at), true, true, "a product of rows of this rank")
	}
	if len(in) > 3 && in[3] != nil && in[3].at != out.at {
		t.each(op, out, []*header{out, in[3]})
	}
}

// partsPlace sets the types of a product of parts of the features with parts of the weights: a part of a sum.
func (t *Tape) partsPlace(op string, out *header, in []*header) {
	sum := in[0].ty.On(Cut) & in[1].ty.On(Cut)
	out.ty = out.ty.With(sum, Partial)
	if op == ops[OpLinearAct].Name && sum != 0 {
		clash(op, these(out), typing.Misfit{Axes: sum, Clash: typing.ClashNonlinear, Have: Partial, Want: Partial})
	}
	for _, h := range in[2:] {
		if h != nil && h.at.Flat() != layout.Zeros && sum&^h.ty.On(Partial) != 0 {
			bad := sum &^ h.ty.On(Partial)
			clash(op, these(out, h), typing.Misfit{Axes: bad, Clash: typing.ClashAdded, Have: Partial, Want: h.ty.At(sum.First())})
		}
	}
}

// contract sets the place and the types of a·b, of which ta and tb transpose the last two dimensions.
func (t *Tape) contract(op string, out, a, b *header, ta, tb bool) {
	x, y := t.operand(a), t.operand(b)
	turned(&x, &t.turned[0], ta)
	turned(&y, &t.turned[1], tb)
	p, rows, seq := layout.Contract(&x, &y, int(out.ndim))
	if parts := x.Place.Cut() >> (len(x.Dims) - 1) & (y.Place.Cut() >> (len(y.Dims) - 2)) & 1; parts != 0 && p.Cut() == 0 {
		out.ty = out.ty.With(a.ty.On(Cut)&b.ty.On(Cut), Partial)
	}
	if p.Cut() != 0 {
		r, k := int(out.ndim), uint8(1)<<(len(x.Dims)-1)
		mustBeAlong(op, a, b, x.Place.Cut()&^k<<(r-len(x.Dims)), y.Place.Cut()&^(1<<(len(y.Dims)-2))<<(r-len(y.Dims)))
	}
	if out.at = p; x.Batch == nil && y.Batch == nil {
		m := uint8(1) << (a.ndim - 2)
		flat := uint8(0)
		if a.ndim == out.ndim { // its rows repeat one
			flat = x.Place.Flat() & m
		}
		out.at = layout.Constant(flat, 0).WithCut(p.Cut())
		return
	}
	bt := t.batchAt(p)
	if (x.Batch == nil) != (y.Batch == nil) && t.records() {
		t.weightsOfRows(op, these(a, b), &x, &y, out)
	}
	if rows|seq == layout.Kept {
		return
	}
	out.summed(bt, rows == layout.Summed, seq == layout.Summed)
	if rows == layout.Mixed || seq == layout.Mixed {
		t.own(op, out, bt, rows == layout.Mixed, seq == layout.Mixed, "a product of rows of this rank with rows of this rank")
	}
}

// turned exchanges the last two dimensions of o if yes.
func turned(o *layout.Operand, dims *[MaxNDim]int, yes bool) {
	if !yes {
		return
	}
	r := copy(dims[:], o.Dims)
	dims[r-1], dims[r-2] = dims[r-2], dims[r-1]
	o.Dims = dims[:r]
	if p := o.Place; (p.Dims()|p.Cut()|p.Flat())>>(r-2) != 0 {
		perm := [MaxNDim]int{0, 1, 2, 3, 4, 5}
		perm[r-1], perm[r-2] = r-2, r-1
		o.Place = p.Permute(perm[:r])
	}
}

// weightsOfRows panics with a *Failure if one operand of a product is the same on all ranks and has other elements for each row of the
// other: the sum over rows, or the output of each, has weights that belong to rows.
func (t *Tape) weightsOfRows(op string, in []*header, x, y *layout.Operand, out *header) {
	for i, c := range [2]*layout.Operand{x, y} {
		v := [2]*layout.Operand{y, x}[i]
		if c.Batch != nil || v.Batch == nil {
			continue
		}
		rc, rv := len(c.Dims), len(v.Dims)
		for seq, what := range [2]string{"rows", "positions"} {
			s := v.Place.Rows()
			if seq == 1 {
				s = v.Place.Seq()
			}
			axes := out.variesOver(v.Batch, seq == 1)
			for d := range rv {
				k := d - rv + rc
				switch {
				case s.Dims()>>d&1 == 0 || d == rv-2 && i == 1 || d == rv-1 && i == 0:
					continue // c has no such dimension
				case d == rv-1 && i == 1:
					k = rc - 2
				case d == rv-2 && i == 0:
					k = rc - 1
				}
				if k >= 0 && c.Dims[k] > 1 && c.Place.Flat()>>k&1 == 0 {
					t.failHeld(op, in, i, -1, axes, c.Dims[k], what)
				}
			}
		}
	}
}

// uniform reports whether h repeats one element along dimension d, or has equal elements if d is −1, such as the labels of a
// discriminator: it does not matter which belongs to which row.
func uniform(h *header, d int) bool {
	if h.n == 0 || h.ld != 0 && d != 0 || !h.st.dev.Host() {
		return false
	}
	if h.ld != 0 {
		row, all := h.dims[1]*h.dtype.Size(), h.ld*h.dtype.Size()
		b := unsafe.Slice((*byte)(h.ptr()), (h.dims[0]-1)*all+row)
		for at := all; at < len(b); at += all {
			if !bytes.Equal(b[at:at+row], b[:row]) {
				return false
			}
		}
		return true
	}
	outer, n, inner := 1, h.n, 1
	if d >= 0 {
		outer, n, inner = product(h.dims[:d]), h.dims[d], product(h.dims[d+1:h.ndim])
	}
	size := inner * h.dtype.Size()
	b := unsafe.Slice((*byte)(h.ptr()), outer*n*size)
	for ; len(b) > 0; b = b[n*size:] {
		if !bytes.Equal(b[size:n*size], b[:(n-1)*size]) {
			return false
		}
	}
	return true
}

// failHeld panics with a *Failure: input i has n elements along its dimension d for this rank's rows, or positions, unless it differs along
// axes. A d of −1 stands for any.
func (t *Tape) failHeld(op string, in []*header, i, d int, axes Axes, n int, what string) {
	h := in[i]
	same := axes &^ (h.ty.On(Varying) | h.ty.On(Own) | h.ty.On(Cut) | h.ty.On(Partial))
	if same == 0 || t.hasNoRows() || !h.needs && uniform(h, d) {
		return
	}
	e := &typing.Error{Axis: same.First(), Clash: typing.ClashHeld, Have: h.ty.At(same.First()), Want: Varying}
	line := "it needs their place, x = x.WithRows(batch.X.Rows()), or tape.Rows(), before Tape.Input"
	switch what {
	case "positions":
		line = "say tensor.OfPositions(x, like)"
	case "features":
		line = "say x = x.WithTypes(tensor.Types{}.With(group.Axes(), tensor.Cut)) before Tape.Input"
	}
	e.Text = fmt.Sprintf("%s is the same on all ranks, but has an element for each of this rank's %d %s: if it belongs to them, %s%s",
		h.label(i), n, what, line, kinds(in, same.First()))
	failWith(op, in, e)
}
