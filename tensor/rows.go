package tensor

import (
	"math/bits"

	"github.com/ringo-ml/ringo/layout"
)

// The words of package layout, which says how things are divided over ranks.
type (
	// Span is a part of a dimension.
	Span = layout.Span
	// Spans is a part of a sequence.
	Spans = layout.Spans
	// Rows says which rectangle of the global batch a tensor holds.
	Rows  = layout.Rows
	batch = layout.Batch
)

// WithRows returns a tensor on x's memory that knows which rows of the global batch it holds; x does not change. Loaders call it. If you
// make batches yourself, call it before Tape.Input, which passes the rows on to the step.
func (x Tensor) WithRows(r Rows) Tensor {
	h := x.hdr()
	switch {
	case h.tape != nil:
		fail("WithRows", these(h), "the tensor is on a tape: call WithRows before Tape.Input")
	case r != (Rows{}) && h.ndim == 0 || r.Stride < 0 || r.Stride == 0 && r != (Rows{}):
		fail("WithRows", these(h), "needs a dimension of rows and a positive Stride, not %+v", r)
	case r.First < 0 || r.Total != 0 && h.dims[0] > 0 && r.First+(h.dims[0]-1)*r.Stride >= r.Total:
		fail("WithRows", these(h), "%d rows from %d on, %d apart, are not among the %d of the batch", h.dims[0], r.First, r.Stride, r.Total)
	case r.Group > 1 && (r.Stride > 1 || r.First%r.Group != 0 || h.dims[0]%r.Group != 0 || r.Total%r.Group != 0):
		fail("WithRows", these(h), "%d rows of %+v are not whole groups: Group divides First, Total, and the rows of each rank "+
			"(see data.Config.Group)", h.dims[0], r)
	case r.Seq.Total != 0 && (h.ndim < 2 || !r.Seq.Holds(h.dims[1])):
		fail("WithRows", these(h), "dimension 1 is not %+v, a part of a sequence", r.Seq)
	}
	switch {
	case r.SeqOver&^r.Over != 0 || r.SeqOver != 0 && r.Seq.Total == 0:
		fail("WithRows", these(h), "SeqOver has axes of Over along which ranks hold other parts of the sequence, in %+v", r)
	case r.SeqOver != 0 || r.Seq.Total == 0:
	case r.Over != 0 && h.dims[0] != r.Total:
		fail("WithRows", these(h), "ranks hold other rows and other parts of the sequence: set SeqOver to those axes of Over along which they "+
			"hold other parts, in %+v", r)
	default:
		r.SeqOver = r.Over // this rank has all rows
	}
	v := &header{dtype: h.dtype, st: h.st, off: h.off, ld: h.ld, n: h.n, ndim: h.ndim, dims: h.dims}
	v.ty = h.ty.With(h.rowsOf().Over, Replicated).With(r.Over, Varying)
	if r.Stride != 0 {
		v.rows = &r
	}
	return Tensor{v, 0}
}

// Rows returns the argument of WithRows, or zero. A tensor of a tape has none: those of the step are Tape.Rows.
func (x Tensor) Rows() Rows { return x.hdr().rowsOf() }

// rowsOf returns the rows of WithRows.
func (h *header) rowsOf() Rows {
	if h.rows == nil {
		return Rows{}
	}
	return *h.rows
}

// noteRows makes the rows of an input those of the step, and gives it its place.
func (t *Tape) noteRows(in, h *header) {
	t.agreement.Over |= h.ty.Differ()
	if h.tape != nil && h.ty.On(Own) != 0 && t.ownWhy == "" {
		t.ownWhy = h.tape.ownWhy
	}
	switch {
	case h.rows != nil:
		t.takeRows(h)
		if r := t.Recording(); r != nil && !t.recompute {
			r.Host(func() { t.takeRows(h) })
		}
		t.placeInput(in, t.rows)
	case h.tape != nil && h.at.Of != 0: // of another tape, such as the features of a frozen model
		b := *h.tape.batchAt(h.at)
		if in.at = h.at; t.rows.Stride == 0 {
			t.rows = b
			t.fed.Add(b)
		}
		in.at.Of = t.know(b)
	case h.tape != nil:
		in.at = h.at
	case !h.dtype.IsFloat():
		in.at = layout.Constant(0, memoryID(h))
	case t.records() && uniform(h, -1):
		in.at = layout.Constant(layout.Repeated, 0)
	default:
		in.at = place{}
	}
}

// batchOfInput returns the batch of a tensor with rows.
func batchOfInput(h *header) batch {
	b := batch{Rows: *h.rows, N: h.dims[0]}
	if b.Seq.Total != 0 {
		b.Positions = h.dims[1]
	}
	return b
}

// takeRows makes h's rows those of the step.
func (t *Tape) takeRows(h *header) {
	t.rows = batchOfInput(h)
	if !t.recompute {
		t.agreement.Batch(h.rows.Number)
	}
	t.fed.Add(t.rows)
}

// Rows returns the rectangle of the global batch that the step works on: that of the last Input with rows. Positional embeddings and
// rotary angles are those of Rows().Seq. It is zero if no input has rows.
func (t *Tape) Rows() Rows { return t.rows.Rows }

// SetTokens says how many flat tokens activations [tokens, features] have, over all ranks that divide them (Region.Rows.Total). Who
// divides them says it in each step, and reads it by Tokens. A Checkpoint runs its function again with the number of the first run; Reset
// forgets it.
func (t *Tape) SetTokens(n int) { t.tokens = n }

// Tokens returns the argument of SetTokens, or 0.
func (t *Tape) Tokens() int { return t.tokens }

// Spans returns the positions of x [batch, time, ...] in its sequence: Rows().Seq, but zero if x has whole sequences, for example after a
// gather. If time is neither, it is a Failure.
func (t *Tape) Spans(x Tensor) Spans {
	h := t.arg(x)
	r := batchOf(t.rows, h)
	if r.Positions == 0 || h.n == 0 {
		return Spans{}
	}
	if h.ndim < 2 || h.dims[1] != r.Positions {
		fail("Spans", these(h), "the step has %v, so the positions are not known", r)
	}
	return r.Seq
}

// pack returns b as the attributes of a node, and unpack converts them back.
func pack(b batch) [8]int {
	return [8]int{b.First, b.Stride, b.Total, b.Seq.First | b.Seq.Break<<32, b.Seq.Total | b.Seq.Skip<<32, b.N, b.Positions | b.Group<<40,
		int(b.Over) | int(b.SeqOver)<<8 | int(b.Head)<<16 | int(b.Tail)<<24 | b.Number<<32}
}

func unpack(i [8]int) batch {
	const low = 1<<32 - 1
	seq := Spans{First: i[3] & low, Total: i[4] & low, Break: i[3] >> 32, Skip: i[4] >> 32}
	r := Rows{First: i[0], Stride: i[1], Total: i[2], Seq: seq, Over: Axes(i[7]), SeqOver: Axes(i[7] >> 8),
		Head: Axes(i[7] >> 16), Tail: Axes(i[7] >> 24), Group: i[6] >> 40, Number: i[7] >> 32}
	return batch{Rows: r, N: i[5], Positions: i[6] & (1<<40 - 1)}
}

// batchOf returns the batch for h: with whole rows if h has whole sequences, gathered over the ranks that share them. If this rank has one
// position of each, flat tokens with as many features as sequences have positions look the same; but they vary along all of b.Over.
func batchOf(b batch, h *header) batch {
	tokens := b.Positions == 1 && b.Over != 0 && b.Over&^h.ty.On(Varying) == 0
	if b.Positions > 0 && h.ndim > 1 && h.dims[0] == b.N && h.dims[1] == b.Seq.Total && !tokens {
		b.Seq, b.Positions = Spans{}, 0
	}
	return b
}

// fits reports whether h's leading dimensions are those of the batch, flattened or not.
func fits(b batch, h *header) bool {
	switch {
	case b.Stride == 0 || h.n == 0:
		return true
	case h.ndim == 0 || b.N == 0:
		return false
	case b.Positions == 0:
		return h.dims[0]%b.N == 0
	}
	return h.dims[0] == b.N*b.Positions || h.dims[0] == b.N && h.ndim > 1 && h.dims[1] == b.Positions
}

// holdsNoRows reports whether h is a whole parameter, the same on all ranks that share b. Other tensors that all ranks have may repeat one
// for each row.
func (h *header) holdsNoRows(b *batch) bool {
	whole := h.base != nil && h.n == h.base.p.Len()
	return b.Stride != 0 && whole && h.ndim > 0 && h.dims[0] > 1 && h.ty.On(Varying)&b.Over == 0
}

// CheckTarget fails if y, to which op compares x, has other rows of the batch than x, or has rows and the step has none.
func (t *Tape) CheckTarget(op string, x, y Tensor) {
	h, b := y.hdr(), t.sliceOfBatch(x.hdr())
	r := h.rowsOf()
	t.target(h)
	own := batch{Rows: r}
	if h.ndim > 0 {
		own.N = h.dims[0]
	}
	switch {
	case r.Total == 0 || b.Total == 0 && r.Total == own.N && r.Seq.Total == 0:
	case b.Total == 0:
		fail(op, these(h), "the targets are %v, but no input of the step has rows: Tape.Input needs the batch's", own)
	case r.First != b.First || r.Stride != b.Stride || r.Total != b.Total || r.Seq != b.Seq && r.Seq.Total*b.Seq.Total != 0:
		fail(op, these(h), "the targets are not of the rows of the step's input: they begin at row %d of %d (positions %+v), and those at "+
			"row %d of %d (positions %+v); if the input is a Slice of joined batches, say which rows it has: x = tensor.RowsLike(x, part)",
			r.First, r.Total, r.Seq, b.First, b.Total, b.Seq)
	}
}

// sliceOfBatch returns the batch of h, of which a Slice may have left a part.
func (t *Tape) sliceOfBatch(h *header) batch {
	b := *t.batchAt(h.at)
	if s := h.at.Rows(); s.Mode() == layout.Portion {
		b.First += s.Outer() * b.Stride
	}
	if s := h.at.Seq(); s.Mode() == layout.Portion {
		b.Seq = b.Seq.Slice(s.Outer(), s.Outer()+h.steps(s))
	}
	return b
}

// globalCount returns the number of h's elements in the global batch. Losses divide by it, so that the sum over ranks is the mean over the
// global batch. x has its rows, or else h. It fails if h cannot be of the batch.
func (t *Tape) globalCount(op string, h, x *header) int {
	if x.at.Of == 0 && h.at.Of != 0 {
		x = h
	}
	n := t.countOf(op, h, x)
	if h.n > 0 {
		t.fed.DividedBy(n)
	}
	return n
}

func (t *Tape) countOf(op string, h, x *header) int {
	of, strict := t.batchAt(x.at), t.records() || t.noGrad && !t.quiet && t.rows.Stride != 0 // not where a text is written
	if strict && x.ty.On(Varying)&^(of.Over|of.SeqOver|t.rows.Over|t.rows.SeqOver) != 0 {
		fail(op, these(x), "ranks that share the rows have other parts of this, such as their tokens under sequence parallelism: sum it over "+
			"these ranks, Apply(&autograd.Sum{Group: tp}, x.Sum()), and Scale by 1/n, or WithAux(y, x.Sum(), 1/n); n is the number of elements "+
			"of all ranks and all rows of the batch (tape.Rows().Total)")
	}
	if x.at.Of != 0 {
		if n, ok := of.Count(h.n, x.at); ok {
			return n
		}
		if over := of.Over; x.at.Dims() == 0 && over&^(x.ty.On(Replicated)|x.ty.On(Invariant)) == 0 { // of a sum of all rows
			return max(h.n, 1)
		}
		if strict {
			fail(op, these(x), "has not all rows of the batch (%v), or not an equal number of elements of each: a mean over something else is a "+
				"Sum, scaled by a count over all ranks (SumFloats), that of rows in another order by 1 / tensor.GlobalCount(input); rows that meet "+
				"others need all (autograd.AllGather)%s", *of, x.madeOf())
		}
	}
	b := batchOf(t.rows, h)
	if over := t.rows.Over; strict && over != 0 && over&^(x.ty.On(Replicated)|x.ty.On(Invariant)) == 0 {
		fail(op, these(x), "is the same on all ranks, and made of no rows of the batch. Does the input lack its Rows? It needs them, "+
			"x = x.WithRows(batch.X.Rows()), or tape.Rows(), before Tape.Input. The mean of what belongs to no rows is x.Mean(), which counts once")
	}
	if !fits(b, h) {
		if b.Over == 0 && b.N == b.Total && (b.Positions == 0 || b.Positions == b.Seq.Total) { // what has no rows has a mean of its elements
			return max(h.n, 1)
		}
		fail(op, these(h),
			"leading dimensions are not those of the step's input (%v): a mean over something else is a Sum, scaled by a count over ranks", b)
	}
	switch {
	case b.Total == 0 || h.n == 0:
		return max(h.n, 1)
	case b.Positions == 0:
		return h.n / b.N * b.Total
	}
	return h.n / (b.N * b.Positions) * b.Total * b.Seq.Total
}

// GlobalCount returns the number of x's elements over the whole global batch; x's leading dimension must be the batch's. A loss of your own
// divides its sum by it. On a tape whose inputs have no rows, it is x.Len(). It is at least 1. If some labels are padding, the number of
// labels that count depends on the data: sum it over the ranks, and pass it to the loss (CrossEntropyOptions.Count).
func GlobalCount(x Tensor) int {
	t := tapeOf("GlobalCount", x)
	h := t.arg(x)
	t.fed.asked = true
	return t.globalCount("GlobalCount", h, h)
}

// GlobalMean returns this rank's part of the mean of x's elements over the global batch: their sum, divided by GlobalCount. The sum over
// ranks is the mean, as for the losses of package ops. End a loss of your own with it. x.Mean() is the mean over this rank's rows, and the
// sum of these means over ranks is not the mean. 16-bit floats are summed as Float32.
func GlobalMean(x Tensor) Tensor {
	t := tapeOf("GlobalMean", x)
	h := t.arg(x)
	count := t.globalCount("GlobalMean", h, h)
	// A mean over a part of the features would be divided by the number of elements in this part, and the sum of the ranks' means is not the
	// mean. What has one element for each row, or for each token, is allowed: it may be a sum over a part of the features.
	if h.ndim > 2 || h.ndim == 2 && (t.rows.Positions == 0 || h.dims[1] != t.rows.Positions) {
		mustBeWhole("GlobalMean", h)
	}
	if x.DType().IsHalf() {
		x = x.Cast(Float32)
	}
	return x.Sum().affine(1/float64(count), 0, true)
}

// Region says which part of an activation a rank has, if it does not have all of it for its rows: some columns under tensor parallelism,
// some rows (flat tokens) under sequence parallelism. The zero Region is the whole.
type Region struct {
	Rows Span // of the leading dimension of the whole activation for this rank's rows and positions
	Cols Span // of the last dimension; for Attention, of the heads
}

// timesRows returns how often the rows of the batch follow each other in h: once, if they are in dimension 0; so often as there are steps,
// if those are in front of it; twice, if two views of the batch are behind each other. It fails if the places of rows are not known.
func (t *Tape) timesRows(op string, h *header, b *batch) int {
	s := h.at.Rows()
	if s.Dims() == 0 || h.n == 0 {
		return 1
	}
	if s.Mode() != layout.Exact || b.Mixed {
		if b.Total != b.N {
			fail(op, these(h), "random numbers follow the places of rows in the batch (%v), which are not known here", *b)
		}
		return 1
	}
	return s.Outer() * product(h.dims[:bits.TrailingZeros8(s.Dims())])
}

// RandomPlace returns where n random numbers of op lie in those of the global batch: the fields of kernel.Rows. The leading dimensions are
// those of in, and the last one has cols columns of width elements, of which at may be a part.
func (t *Tape) RandomPlace(op Op, in Tensor, n, cols, width int, at Region) [8]int {
	h := in.hdr()
	if b := *t.batchAt(h.at); at.Rows.Total != 0 && (b.Stride > 1 || b.Positions > 0) {
		fail(op.String(), these(h), "a part of %d leading elements needs a batch of whole rows side by side, not %v", at.Rows.Total, b)
	}
	return t.randomPlace(op.String(), h, n, cols, width, at)
}

// ElementPlace is RandomPlace of a number for each element of in, which may have several times the rows of a batch, behind each other: all
// elements have the random numbers that they have on one rank, where each time has all rows of the batch.
func (t *Tape) ElementPlace(op Op, in Tensor, at Region) [8]int {
	h, cols := in.hdr(), 1
	if h.ndim > 0 {
		cols = h.dims[h.ndim-1]
	}
	if at == (Region{}) && h.holdsNoRows(t.batchAt(h.at)) {
		t.mustSeparateRandom(op.String(), h, at)
		return [8]int{0, h.n, h.n, cols, cols}
	}
	if b := *t.batchAt(h.at); h.at.Of != 0 && at == (Region{}) {
		t.mustSeparateRandom(op.String(), h, at)
		if k := t.timesRows(op.String(), h, &b); k > 1 && b.Positions > 0 {
			fail(op.String(), these(h), "a part of the positions of each row (%v): the rows must be dimension 0", b)
		} else if k > 1 {
			each := h.n / (k * b.N)
			return [8]int{b.First * each, b.Total * each, b.N * each, each, b.Stride * each}
		}
	}
	return t.randomPlace(op.String(), h, h.n, cols, 1, at)
}

// randomPlace returns the arguments of the dropout kernels, for n elements whose leading dimensions are in's: the fields of kernel.Rows.
// The last dimension has cols columns of width elements.
func (t *Tape) randomPlace(op string, in *header, n, cols, width int, at Region) (p [8]int) {
	t.mustSeparateRandom(op, in, at)
	b := *t.batchAt(in.at)
	if n == 0 {
		return p
	}
	if at.Rows.Total == 0 { // a rank's tokens may look like whole sequences
		if b = batchOf(b, in); in.at.Of != 0 && t.timesRows(op, in, &b) > 1 {
			fail(op, these(in), "the rows of the batch must be dimension 0: others have other places for random numbers")
		}
	}
	if !at.Cols.Holds(cols) || at.Rows.Total != 0 && !at.Rows.Holds(in.dims[0]) {
		fail(op, these(in), "does not fit the Region that was given: %+v", at)
	}
	if b.Positions > 0 && in.ndim == 2 && in.dims[0] == b.N && in.dims[1] == b.Positions && at == (Region{}) { // an element for each position
		cols = 1
	}
	first, stride, rows := b.First, b.Stride, b.N
	if stride == 0 {
		first, stride, rows = 0, 1, 1
	}
	elems, skip := n, 0
	switch {
	case at.Rows.Total == 0:
		if !fits(b, in) {
			fail(op, these(in), "shapes do not fit: the leading dimensions are not those of the step's input (%v)", b)
		}
		elems /= rows
	case rows == 0 || at.Rows.Total%rows != 0 || b.Positions > 0 && at.Rows.Total != rows*b.Positions:
		fail(op, these(in), "a part of %d leading elements, which are not the tokens of the step's input (%v)", at.Rows.Total, b)
	case in.at.Of != 0 && in.at.Rows() == layout.NewSpot(1, layout.Loose, 0) && (b.Total != b.N || b.Positions > 0):
		fail(op, these(in), "a part of tokens that are not row after row: random numbers follow the places of rows in the batch (%v)", b)
	case stride == 1 && b.Positions == 0: // each token counts as a row
		first, elems = first*(at.Rows.Total/rows)+at.Rows.First, n/in.dims[0]
	default:
		each := n / in.dims[0]
		elems, skip = each*(at.Rows.Total/rows), each*at.Rows.First
	}
	full, line, lines := cols*width, 0, elems/(cols*width)
	if at.Cols.Total != 0 {
		full = at.Cols.Total * width
	}
	if b.Positions > 0 {
		each := lines / b.Positions
		line, lines = b.Seq.First*each, b.Seq.Total*each
		p[6], p[7] = b.Seq.Break*(elems/b.Positions), b.Seq.Skip*each*full
	}
	return [8]int{(first*lines+line)*full + at.Cols.First*width, stride * lines * full, elems, cols * width, full, skip, p[6], p[7]}
}
