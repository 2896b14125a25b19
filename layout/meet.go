package layout

import "slices"

// Operand is a tensor in an operation of several: its place, dimensions and batch.
type Operand struct {
	Place Place
	Dims  []int
	Batch *Batch // nil: it has no rows
}

// size returns the size of o along dimension d of an output of the given rank, to which it is broadcast.
func (o *Operand) size(d, rank int) int {
	if d -= rank - len(o.Dims); d >= 0 {
		return o.Dims[d]
	}
	return 1
}

// spot returns the place of rows, or with seq of positions.
func (p Place) spot(seq bool) Spot { return either(seq, p.Rows(), p.Seq()) }

// related reports whether the rows of two operands can be the same.
func related(x, y *Operand) bool {
	return x.Place.Of == y.Place.Of || x.Batch != nil && y.Batch != nil && x.Batch.Related(y.Batch)
}

// ofRows reports whether x has positions, of which other ranks have others, or sums over them, and y rows without: whether these can be the
// same rows, and whether y is repeated along the positions.
func ofRows(x, y *Operand, rank int) (same, repeated bool) {
	b, c := x.Batch, y.Batch
	s := x.Place.Seq().shift(rank - len(x.Dims))
	if b.SeqOver == 0 || c.SeqOver != 0 {
		return false, true
	}
	repeated = true
	for d := s.first(); d <= s.last(); d++ {
		repeated = repeated && y.size(d, rank) == 1
	}
	return b.Axes(false) == c.Over && b.First*c.Total == c.First*b.Total && b.N*c.Total == c.N*b.Total, repeated
}

// Meet returns the place of an output of the given rank whose elements are each made of one element of x and one of y, both broadcast from
// the right. Where a row would meet another row, rows is false; seq says so for positions. They are in no dimension then.
func Meet(x, y *Operand, rank int) (p Place, rows, seq bool) {
	if x.Batch == nil {
		x, y = y, x
	}
	p, q := x.Place.Shift(rank-len(x.Dims)), y.Place.Shift(rank-len(y.Dims))
	same, repeated := related(x, y), true
	if y.Batch != nil && !same {
		if same, repeated = ofRows(x, y, rank); !same && repeated {
			if same, repeated = ofRows(y, x, rank); same {
				p.Of = q.Of
			}
		}
	}
	r, rows := combined(p.Rows(), q.Rows(), x, y, rank, rank, same)
	s, seq := combined(p.Seq(), q.Seq(), x, y, rank, rank, same)
	if y.Batch != nil && y.Batch.N > x.Batch.N { // x counts groups of y's rows
		p.Of = q.Of
	}
	if !repeated { // y has an element for each of this rank's positions, and does not say so
		s, seq = Spot{}, false
	}
	return p.With(r, s).WithCut(p.cut | q.cut), rows, seq
}

// combined returns where the rows are. The first shared dimensions of both operands are broadcast against each other. same says that they
// can have the same rows.
func combined(a, b Spot, x, y *Operand, rank, shared int, same bool) (s Spot, ok bool) {
	if s = a; a.Dims() == 0 {
		s = b
	} else if b.Dims() != 0 && !(a.same(b) && same) {
		return Spot{}, false
	}
	for d := s.first(); d <= min(s.last(), shared-1); d++ {
		if n, m := x.size(d, rank), y.size(d, rank); n != m && (a.Dims() != 0 && n == 1 || b.Dims() != 0 && m == 1) {
			return Spot{}, false // a row is repeated
		}
	}
	return s, true
}

// same reports whether two Spots say the same of each element. The order 0 is unlike all.
func (s Spot) same(t Spot) bool { return s == t && (s.Mode() != Loose || s.outer != 0) }

// Contraction says what a sum of products over one dimension does to rows, or to positions.
type Contraction uint8

// The contractions.
const (
	Kept   Contraction = iota // they are in other dimensions
	Summed                    // it is a sum over them
	Mixed                     // rows of this rank meet other rows of this rank, or a part of what Reshape made of them is summed
)

// Contract returns the place of out[..., m, n] = Σk x[..., m, k] · y[..., k, n], whose other dimensions are broadcast from the right. A
// Summed x or y alone is a sum over rows with weights from the other, which must not have other elements for each of them.
func Contract(x, y *Operand, rank int) (p Place, rows, seq Contraction) {
	p = x.Place
	if p == y.Place && p.cut == 0 && p.Ordered() && p.Dims()>>(rank-2) == 0 &&
		slices.Equal(x.Dims[:len(x.Dims)-2], y.Dims[:len(y.Dims)-2]) {
		return p, Kept, Kept // the common case
	}
	if x.Batch == nil {
		p = y.Place
	}
	r, rows := contract(x, y, rank, false)
	s, seq := contract(x, y, rank, true)
	k, n := uint8(1)<<(len(x.Dims)-1), uint8(1)<<(len(y.Dims)-1)
	cut := x.Place.cut&^k<<(rank-len(x.Dims)) | y.Place.cut&^(n>>1)<<(rank-len(y.Dims))
	return p.With(r, s).WithCut(cut), rows, seq
}

func contract(x, y *Operand, rank int, seq bool) (Spot, Contraction) {
	a, b := x.Place.spot(seq), y.Place.spot(seq)
	k, l := len(x.Dims)-1, len(y.Dims)-2
	inX, inY := a.Dims()>>k&1 != 0, b.Dims()>>l&1 != 0
	switch {
	case a.single(k) && b.Dims() == 0, b.single(l) && a.Dims() == 0,
		a.single(k) && NewSpot(1<<l, a.Mode(), a.Outer()).same(b) && related(x, y):
		return Spot{}, Summed
	case inX || inY:
		return Spot{}, Mixed
	}
	out, ok := combined(a.shift(rank-len(x.Dims)), b.shift(rank-len(y.Dims)), x, y, rank, rank-2, related(x, y))
	return out, either(ok, Mixed, Kept)
}

// Concat returns the place of a concatenation along dimension d, whose result has the given rank. ok is as in Meet. With union, each rank
// has rows of several batches behind each other: the number of their Union is for the caller to set.
func Concat(d int, in []Operand) (p Place, rows, seq, union bool) {
	p, rows, seq = in[0].Place, true, true
	first, cut := -1, uint8(0)
	for i := range in {
		cut |= in[i].Place.cut
		if in[i].Batch != nil && first < 0 {
			first, p = i, in[i].Place
		}
	}
	if first < 0 {
		return p.WithCut(cut), true, true, false
	}
	r, rows, union := concat(d, in, first, false)
	s, seq, _ := concat(d, in, first, true)
	return p.With(r, s).WithCut(cut), rows, seq, union
}

// concat returns where the rows are. Operand at is the first that has a batch.
func concat(d int, in []Operand, at int, seq bool) (s Spot, ok, union bool) {
	along := false
	for i := range in {
		if in[i].Batch == nil {
			continue
		}
		t := in[i].Place.spot(seq)
		along = along || t.Dims()>>d&1 != 0
		switch {
		case s.Dims() == 0:
			s = t
		case t.Dims() != 0 && (t.Dims() != s.Dims() || !along && t != s || !along && !related(&in[at], &in[i])):
			return Spot{}, false, false
		}
	}
	switch {
	case along:
		return join(d, in, seq, s)
	case s.around(d):
		return s.mixed(s.at, opConcat, d, len(in)), true, false
	}
	return s, true, false
}

// join returns where the rows are in a concatenation of rows.
func join(d int, in []Operand, seq bool, s Spot) (_ Spot, ok, union bool) {
	views, windows, next, outer, order := true, true, -1, 0, s
	union = !seq
	for i := range in {
		t, o, b := in[i].Place.spot(seq), in[i].Dims[d], in[i].Batch
		if order = order.mixed(s.at, opConcat, d, int(t.at), int(t.outer), o); t.Mode() == Loose && t.outer == 0 {
			order = NewSpot(s.at, Loose, 0)
		}
		if b == nil || !t.single(d) {
			views, windows, union = false, false, false
			continue
		}
		exact := t.Mode() == Exact
		views = views && exact && in[i].Place.Of == in[0].Place.Of && o*in[0].Place.spot(seq).Outer() == in[0].Dims[d]*t.Outer()
		union = union && exact && t.Outer() == 1 && o*in[0].Batch.N == in[0].Dims[d]*b.N && b.Over == in[0].Batch.Over && b.Positions == 0
		windows = windows && t.Mode() == Portion && (i == 0 || t.Outer() == next) && in[i].Place.Of == in[0].Place.Of
		next, outer = t.Outer()+o, outer+t.Outer()
	}
	switch t := in[0].Place.spot(seq); {
	case views:
		return NewSpot(1<<d, Exact, outer), true, false
	case windows && t.Outer() == 0 && next == in[0].Batch.rows(seq):
		return NewSpot(1<<d, Exact, 1), true, false
	case windows:
		return t, true, false
	case union:
		return NewSpot(1<<d, Exact, 1), true, true
	}
	return order, true, false
}

// rows returns the number of rows, or with seq of positions.
func (b *Batch) rows(seq bool) int { return either(seq, b.N, b.Positions) }

// Union returns the batch that has the rows of all, behind each other. Its rows have no place in the global batch.
func Union(in []Operand) Batch {
	b := *in[0].Batch
	b.N, b.Total, b.First, b.Stride, b.Group = 0, 0, 0, 1, 0
	for i := range in {
		b.N, b.Total = b.N+in[i].Batch.N, b.Total+in[i].Batch.Total
	}
	b.Mixed = true
	return b
}
