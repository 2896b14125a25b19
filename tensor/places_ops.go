package tensor

import (
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// reduced sets types and place of a reduction over the dimensions in mask: a sum if linear, else something that has a meaning for each row
// alone.
func (t *Tape) reduced(op string, out, in *header, mask int, linear bool) {
	v, c := in.ty.On(Varying), in.ty.On(Cut)
	if in.at == (place{}) && v|c == 0 || !t.typing() {
		return
	}
	if linear && in.ndim > 0 && mask == 1<<in.ndim-1 {
		out.ty, out.at = out.ty.With(v|c, Partial), place{}
		return
	}
	p, rows, seq, cut := in.at.Reduce(uint8(mask), int(in.ndim))
	if out.at = p; cut.Some {
		if !linear || !cut.All {
			mustBeWhole(op, in)
		}
		out.ty = out.ty.With(c, Partial)
	}
	if in.at.Of == 0 {
		t.reducedUnknown(op, out, in, mask, linear)
		return
	}
	b := t.batchAt(in.at)
	out.summed(b, linear && rows.All, linear && seq.All)
	ownRows, ownSeq := rows.Some && !(linear && rows.All), seq.Some && !(linear && seq.All)
	switch {
	case !ownRows && !ownSeq:
	case linear:
		t.own(op, out, b, ownRows, ownSeq, "over a part of what Reshape made of this rank's rows: groups of rows must be those of Rows.Group")
	default:
		t.own(op, out, b, ownRows, ownSeq, "which is not linear, over this rank's rows")
	}
}

// mustNotRepeat panics with a *Failure if h repeats what is the same on all ranks for each of this rank's rows, and a sum adds that up: it
// would be of the first rank's rows alone.
func (t *Tape) mustNotRepeat(op string, h *header, dims []int) {
	b := &t.rows
	same := b.Over & (h.ty.On(Replicated) | h.ty.On(Invariant))
	if same == 0 || b.N < 2 || h.ndim == 0 || h.dims[0] != b.N || h.at.Flat()&1 == 0 || h.at.Flat()&layout.Repeated == layout.Repeated ||
		len(dims) > 0 && !slices.Contains(dims, 0) && !slices.Contains(dims, -int(h.ndim)) || !t.noting() || !t.records() {
		return
	}
	fail(op, these(h), "repeats the same for each of this rank's %d rows, and belongs to none of them: a sum over them does not count other "+
		"ranks' rows; multiply it by what has a row for each, or write the sum as a Scale", b.N)
}

// reducedUnknown is for a tensor that differs between ranks and whose rows are not known, such as one that another rank sent: they are
// taken to be in dimension 0.
func (t *Tape) reducedUnknown(op string, out, in *header, mask int, linear bool) {
	out.at = place{}.WithCut(out.at.Cut())
	v := in.ty.On(Varying)
	switch {
	case v == 0 || in.ndim == 0 || mask&1 == 0:
	case linear && t.rows.N > 0 && in.dims[0]%t.rows.N == 0:
		out.ty = out.ty.With(v&t.rows.Over, Partial)
	case !linear:
		t.own(op, out, &t.rows, true, true, "which is not linear, of a tensor whose rows are not known")
	}
}

// reshaped sets the place of in's elements in other dimensions, of which free was computed from the others; −1: none.
func (t *Tape) reshaped(out, in *header, free int) {
	from, to := in.dims[:in.ndim], out.dims[:out.ndim]
	b := t.batchAt(in.at)
	if b.Group > 1 {
		if p, ok := in.at.Grouped(from, to, free, b); ok {
			p.Of = t.know(b.Groups())
			out.at = p
			return
		}
	}
	out.at = in.at.Reshape(from, to, free, b)
}

// joined sets place and types of a concatenation along dimension d.
func (t *Tape) joined(out *header, in []*header, d int) {
	var memory [maxInputs]layout.Operand
	list := memory[:0]
	flat, placed := uint8(layout.Repeated), false
	for _, h := range in {
		if h.dims[d] != 0 || out.dims[d] == 0 { // an empty part changes nothing
			list = append(list, t.operand(h))
		}
		flat &= h.at.Flat()
		placed = placed || h.at.Of != 0
	}
	p, rows, seq, union := layout.Concat(d, list)
	if out.at = p; !placed {
		out.at = layout.Constant(flat&^(1<<d), 0).WithCut(p.Cut())
		return
	}
	if union {
		out.at.Of = t.know(layout.Union(list))
	}
	inRows, inSeq := p.Rows().Dims()>>d&1 != 0, p.Seq().Dims()>>d&1 != 0
	if !inRows && !inSeq {
		t.mustNotHold("concat", out, in)
	} else if slices.ContainsFunc(in, out.sameOnAll) {
		t.own("concat", out, t.batchAt(out.at), inRows, inSeq, "of rows and a tensor that all ranks have, which counts once for each")
	}
	if !rows || !seq {
		t.own("concat", out, t.batchAt(out.at), !rows, !seq, "of other rows of this rank")
	}
}

// sameOnAll reports whether h has elements, and is the same on ranks along an axis on which x differs.
func (x *header) sameOnAll(h *header) bool {
	v := x.ty.On(Varying)
	return h.n > 0 && h.at.Of == 0 && h.ty.On(Varying)&v != v
}

// PickTypes says of out, which op made by a rule of RowsPicked or RowsByCaller, that it has the elements of x that idx, of x's dimensions,
// picks along dimension dim.
func (t *Tape) PickTypes(op Op, out, x, idx Tensor, dim int) {
	in, ids := x.hdr(), idx.hdr()
	if !t.typing() || in.at.Of|ids.at.Of == 0 {
		return
	}
	like := *in // its size along dim is that of the indices
	like.dims[dim] = ids.dims[dim]
	if in.at.Of != 0 {
		like.at = in.at.Pick(dim, in.dims[dim], order(ids))
	} else { // rows pick from a table: the table's rows are its own matter
		like.at = layout.Constant(layout.Repeated, 0)
	}
	t.each(op.String(), out.hdr(), []*header{&like, ids})
	t.mustPickAll(op.String(), out.hdr(), in, ids, dim)
}

// mustPickAll makes out this rank's own if idx, which belongs to no row, picks some of x's rows along dimension d, and not all alike.
func (t *Tape) mustPickAll(op string, out, x, idx *header, d int) {
	rows, seq := x.at.Rows().Dims()>>d&1 != 0, x.at.Seq().Dims()>>d&1 != 0
	if n := x.dims[d]; idx.ty.On(Own) != 0 && x.at.Rows() == layout.NewSpot(1<<d, layout.Exact, 1) && t.noting() && t.dev.Host() &&
		out.at.Rows().Outer() != 0 && !t.picksAll(idx, n) {
		t.sliced = true
		site := t.callSite()
		for _, row := range Data[int64](idx.tensor()) {
			t.chosen = append(t.chosen, chosen{out.at.Rows().Outer(), int(row), site})
		}
	}
	if idx.at.Of == 0 && idx.ty.Differ() == 0 && (rows || seq) && idx.st.dev.Host() && !t.picksAll(idx, x.dims[d]) {
		t.own(op, out, t.batchAt(x.at), rows, seq, "of some of this rank's rows, by indices that belong to none: divide the sum by "+
			"the number of all that ranks chose, tape.Agree(n), and say tensor.AsPart(sum.Scale(1/n), group.Axes())")
	}
}

// picksAll reports whether the indices, which are in host memory, are each of 0 to n-1 equally often.
func (t *Tape) picksAll(idx *header, n int) bool {
	if n == 0 || idx.n%n != 0 || idx.ld != 0 {
		return false
	}
	times := slices.Grow(t.times[:0], n)[:n]
	clear(times)
	t.times = times
	for _, k := range Data[int64](idx.tensor()) {
		if k < 0 || k >= int64(n) {
			return false
		}
		times[k]++
	}
	return slices.Min(times) == slices.Max(times)
}

// order returns the number by which what is picked with the same indices is recognized.
func order(idx *header) int {
	if id := idx.at.ID(); id != 0 {
		return id
	}
	return int(memoryID(idx))
}

// memoryID is the number of a tensor by its memory. It is not 0. It is a digest of 15 bits, and memory is used again: rarely, two tensors
// have the same one. Then indices that differ are taken for the same, and a program that mixes rows is not refused. No result depends on
// it.
func memoryID(h *header) uint16 {
	if h.st == nil {
		return 1
	}
	return uint16(kernel.Key(uint64(uintptr(h.st.ptr)), uint64(h.off))) | 1
}

// LookupTypes says of out [..., d], which op made by a rule of RowsByCaller, that it has the rows of the table w [n, d] with numbers
// ids [...].
func (t *Tape) LookupTypes(op Op, out, w, ids Tensor) {
	if !t.typing() {
		return
	}
	h, table, by := out.hdr(), w.hdr(), ids.hdr()
	if table.at.Of == 0 {
		if h.at = by.at; by.at.Of == 0 {
			h.at = place{}
		}
		h.at = h.at.WithCut(table.at.Cut() >> 1 & 1 << (h.ndim - 1))
		return
	}
	p := table.at.Pick(0, table.dims[0], order(by))
	all := uint8(1)<<by.ndim - 1
	spread := func(s layout.Spot) layout.Spot {
		switch s.Dims() {
		case 0:
			return s
		case 2:
			return layout.NewSpot(1<<by.ndim, s.Mode(), s.Outer())
		}
		return layout.NewSpot(all|s.Dims()>>1&1<<by.ndim, layout.Loose, s.Outer())
	}
	h.at = p.With(spread(p.Rows()), spread(p.Seq()))
	t.mustPickAll(op.String(), h, table, by, 0)
}

// ScatterTypes says of out, which op made by a rule of RowsAdded, that it is x to which the elements of src are added, along dimension
// dim where idx says.
func (t *Tape) ScatterTypes(op Op, out, x, idx, src Tensor, dim int) {
	h, in, ids, add := out.hdr(), x.hdr(), idx.hdr(), src.hdr()
	if ids.ty.On(Own) != 0 && t.noting() && t.dev.Host() && !t.picksAll(ids, in.dims[dim]) && t.nn > 0 && t.node(t.nn-1).out == h {
		t.node(t.nn - 1).Key = t.callSite()
	}
	if t.typing() && (!h.needs || !t.record) {
		t.added = append(t.added, h)
	}
	if !t.typing() || in.at.Of|ids.at.Of|add.at.Of == 0 {
		return
	}
	like := *add
	like.ty = h.ty
	t.each(op.String(), &like, []*header{ids, add})
	p, rows, seq, _ := like.at.Reduce(1<<dim, int(add.ndim))
	if h.at = like.at; !rows.Some && !seq.Some {
		if in.at.Of != 0 && in.at != h.at {
			t.each(op.String(), h, []*header{in, h})
		}
		return
	}
	b := t.batchAt(like.at)
	if bad := like.variesOver(b, false) &^ (in.ty.On(Varying) | in.ty.On(Partial)); bad != 0 && t.records() && in.at.Flat() != layout.Zeros {
		e := &typing.Error{Axis: bad.First(), Clash: typing.ClashAdded, Have: in.ty.At(bad.First()), Want: Partial}
		e.Text = "elements of this rank's rows are added up, so the result is a partial sum, and what they are added to would count once for " +
			"each rank: begin with Tape.Zeros"
		failWith(op.String(), these(in, ids, add), e)
	}
	h.at = place{Of: p.Of}.With(keepDims(p.Rows(), dim), keepDims(p.Seq(), dim))
	h.ty = like.ty
	h.summed(b, rows.All, seq.All)
	if rows.Some && !rows.All || seq.Some && !seq.All {
		t.own(op.String(), h, b, rows.Some && !rows.All, seq.Some && !seq.All, "of a part of what Reshape made of this rank's rows")
	}
}

// PadTypes says of out, which op made by a rule of RowsByCaller, that it is x with zeros in front of its dimension dim, before of them, and
// behind it.
func (t *Tape) PadTypes(op Op, out, x Tensor, dim, before int) {
	h, in := out.hdr(), x.hdr()
	if h.dims[dim] != in.dims[dim] && in.at.Cut() == 1<<dim { // on one rank, zeros are around all features alone
		mustBeWhole(op.String(), in)
	}
	if in.at.Of != 0 {
		h.at = in.at.Pad(dim, before, h.dims[dim], t.batchAt(in.at))
	} else {
		h.at = layout.Constant(in.at.Flat()&^(1<<dim), 0).WithCut(in.at.Cut())
	}
}

// scatters reports whether h was added up by a rule of RowsAdded.
func (t *Tape) scatters(h *header) bool {
	for i := t.nn - 1; i >= 0 && h.needs && t.record; i-- {
		switch n := t.node(i); {
		case n.out != h:
		case n.op == OpReshape || n.op == OpAffine || n.op == OpCast:
			h = n.in[0]
		default:
			return ops[n.op].Rows == RowsAdded
		}
	}
	return slices.Contains(t.added, h)
}

// keepDims returns s, of a tensor without dimension d, in one that has it.
func keepDims(s layout.Spot, d int) layout.Spot {
	low := s.Dims() & (1<<d - 1)
	return layout.NewSpot(low|(s.Dims()&^low)<<1, s.Mode(), s.Outer())
}

// compared sets the types of a loss of x whose targets y may be flattened. With classes, x has one dimension more, of classes.
func (t *Tape) compared(op string, out, x, y *header, classes bool) {
	if !t.typing() || x.at.Of == 0 {
		return
	}
	a, bt := t.operand(x), t.batchAt(x.at)
	if classes {
		last := int(x.ndim) - 1
		p, rows, seq, _ := x.at.Reduce(1<<last, int(x.ndim))
		if a.Place, a.Dims = p, x.dims[:last]; rows.Some || seq.Some {
			t.own(op, out, bt, rows.Some, seq.Some, "which is not linear, along this rank's rows")
		}
	}
	if y.at.Of == 0 || bt.N < 2 || bt.Positions == 1 { // after a Reshape, a dimension of one element may be any
		return
	}
	b := t.operand(y)
	if s := a.Place.Rows(); s.Mode() == layout.Portion { // checkTarget has compared it with targets that say which rows they are
		if r := b.Batch; r.First == bt.First+s.Outer()*bt.Stride && r.Total == bt.Total && r.N < bt.N {
			return
		}
	}
	b.Place, b.Dims = y.at.Reshape(b.Dims, a.Dims, -1, b.Batch), a.Dims
	if _, rows, seq := layout.Meet(&a, &b, len(a.Dims)); !rows || !seq {
		t.own(op, out, bt, !rows, !seq, "where other rows of this rank meet")
	}
}

// Zeros returns zeros on the tape. Nothing counts twice if they are added to partial sums, or if rows are added up in them.
func (t *Tape) Zeros(dtype DType, dims ...int) Tensor {
	h := t.newTensor(dtype, dims...)
	t.Fill(h.tensor(), 0)
	h.at = layout.Constant(layout.Zeros, 0)
	return h.tensor()
}

// RowsLike returns x, which has a row for each row of like, in their order: for a program that sent rows away, or sorted them, and has them
// back, or that added up messages for these rows by ScatterAdd, of graphs that this rank has whole, or that cuts two batches apart again,
// which went through a model as one (Concat).
func RowsLike(x, like Tensor) Tensor {
	t := tapeOf("RowsLike", x, like)
	h, l := t.arg(x), t.arg(like)
	if h.ndim == 0 || l.ndim == 0 || h.dims[0] != l.dims[0] {
		fail("RowsLike", these(h, l), "other number of rows")
	}
	out := t.alias(h)
	t.rec(OpReshape, out, h)
	out.at = h.at
	if l.at.Of != 0 {
		keep := func(s layout.Spot) layout.Spot { return layout.NewSpot(s.Dims()&1, s.Mode(), s.Outer()) }
		out.at = l.at.With(keep(l.at.Rows()), keep(l.at.Seq())).WithCut(h.at.Cut())
		if t.scatters(h) {
			out.ty = out.ty.With(h.ty.On(Partial)&l.ty.On(Varying), Varying)
		}
	}
	if !h.needs {
		out.ty = out.ty.With(l.ty.On(Varying)&(h.ty.On(Replicated)|h.ty.On(Invariant)), Varying)
	}
	return out.tensor()
}

// OfPositions returns x [positions, ...], the part of a table or mask that belongs to the positions of like (such as
// [batch, positions, ...]), as such. It changes nothing unless ranks have parts of each sequence.
func OfPositions(x, like Tensor) Tensor {
	t := tapeOf("OfPositions", x, like)
	h, l := t.arg(x), t.arg(like)
	axes := l.variesOver(t.batchAt(l.at), true)
	if l.at.Of == 0 || axes == 0 {
		return x
	}
	s := l.at.Seq()
	d := bits.TrailingZeros8(s.Dims())
	if h.ndim == 0 || s.Dims() == 0 || s != layout.NewSpot(1<<d, layout.Exact, 1) || h.dims[0] != l.dims[d] {
		fail("OfPositions", these(h, l), "needs one element for each position of the second, which has a dimension of positions")
	}
	out := t.alias(h)
	t.rec(OpReshape, out, h)
	same := out.ty.On(Replicated)
	if !h.needs {
		same |= out.ty.On(Invariant)
	}
	out.ty = out.ty.With(axes&same, Varying)
	out.at = place{Of: l.at.Of}.With(layout.Spot{}, layout.NewSpot(1, layout.Exact, 1))
	return out.tensor()
}
