package tensor

import (
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/layout"
)

// Moves is a Typed Function that moves elements between ranks along one dimension: it joins the parts that the ranks have along a dimension
// of its input, or divides its output along one. Negative ones count from the end. NoDim is none.
type Moves interface{ Moves() (joins, divides int) }

// NoDim is the dimension of Moves that joins or divides nothing.
const NoDim = -100

// applyPlaces sets the place of a Function's output y. Without Types, a Function computes on each rank alone: what has x's shape is taken
// to have its rows. With Types, rows that are not where they were have an order of their own.
func (c *Ctx) applyPlaces(y *header, in []*header) {
	x := in[0]
	for _, h := range in {
		if h.at.Of != 0 {
			x = h
			break
		}
	}
	m, moves := c.f.(Moves)
	if moves {
		c.moved(m, y, x)
		return
	}
	if y.at = (place{}); x.at.Of == 0 {
		return
	}
	rows, seq := x.at.Rows(), x.at.Seq()
	if y.alike(x) {
		if y.at = x.at; y.ty.On(Cut) == 0 {
			y.at = y.at.WithCut(0)
		}
		return
	}
	keepsRows, keepsSeq, cut := keeps(rows, y, x), keeps(seq, y, x), x.at.Cut()&(1<<y.ndim-1)
	if len(c.types) == 0 {
		if y.at = x.at.With(spotIf(keepsRows, rows), spotIf(keepsSeq, seq)).WithCut(cut); !keepsRows || !keepsSeq {
			c.t.own(c.f.Name(), y, c.t.batchAt(x.at), !keepsRows, !keepsSeq, "a Function without Types, loses the dimension of rows")
		}
		return
	}
	y.at = x.at.With(c.other(rows, y, keepsRows), c.other(seq, y, keepsSeq)).WithCut(cut)
	if y.ty.On(Cut) == 0 {
		y.at = y.at.WithCut(0)
	}
}

// keeps reports whether the dimensions of s are in y what they are in x.
func keeps(s layout.Spot, y, x *header) bool {
	n := bits.Len8(s.Dims())
	return n <= int(y.ndim) && slices.Equal(y.dims[:n], x.dims[:n])
}

// spotIf returns s if it is kept, else no dimension.
func spotIf(kept bool, s layout.Spot) layout.Spot {
	if kept {
		return s
	}
	return layout.Spot{}
}

// other returns s if y keeps it; else all rows are somewhere, in the Function's order.
func (c *Ctx) other(s layout.Spot, y *header, keeps bool) layout.Spot {
	switch {
	case keeps || y.ndim == 0 && s.Dims() == 0:
		return s
	case y.ndim == 0:
		return layout.Spot{}
	}
	name := uint64(0)
	for _, b := range []byte(c.f.Name()) {
		name = name*31 + uint64(b)
	}
	dims := s.Dims() & (1<<y.ndim - 1)
	if dims == 0 {
		dims = 1 << (y.ndim - 1)
	}
	return layout.NewSpot(dims, layout.Loose, int(uint16(kernel.Key(name)))|1)
}

// moved sets the place after elements moved between ranks.
func (c *Ctx) moved(m Moves, y, x *header) {
	joins, divides := m.Moves()
	if joins < 0 && joins != NoDim {
		joins += int(x.ndim)
	}
	if divides < 0 && divides != NoDim {
		divides += int(y.ndim)
	}
	t, cut := c.t, x.at.Cut()
	if joins >= 0 && x.ty.On(Cut)&^y.ty.On(Cut) != 0 {
		cut &^= 1 << joins
	}
	if divides >= 0 && y.ty.On(Cut)&^x.ty.On(Cut) != 0 {
		cut |= 1 << divides
	}
	b := t.batchAt(x.at)
	if x.at.Of == 0 && b.Stride == 0 {
		y.at = layout.Constant(0, 0).WithCut(cut)
		return
	}
	was, is := x.ty.On(Varying), y.ty.On(Varying)
	lost, came := was&^is, is&^was
	if lost&b.SeqOver != 0 && b.Seq.Skip > 0 {
		fail(c.f.Name(), these(x), "ranks have two runs of each sequence (%+v): joined, these are not in the order of positions", b.Seq)
	}
	if lost&b.SeqOver != 0 && b.SeqOver&^lost != 0 {
		fail(c.f.Name(), these(x), "other ranks than those of its group have parts of the sequence too (%+v): joined over some, "+
			"these have no known order; use a group of all axes that divide sequences, such as mesh.Group(\"ring\", \"uly\")", b.Seq)
	}
	if end := b.Seq.First + b.Positions; lost&b.SeqOver&b.Head != 0 && b.Seq.First > 0 && end == b.Seq.Total {
		fail(c.f.Name(), these(x), "the first rank has the last positions (%+v): joined, these are not in the order of positions", b.Seq)
	}
	rows := movedSpot(x.at.Rows(), y, b.N, lost&b.Axes(false) != 0, came&b.Axes(false) != 0, divides)
	seq := movedSpot(x.at.Seq(), y, b.Positions, lost&b.SeqOver != 0, came&b.SeqOver != 0, divides)
	if lost&^b.Over != 0 { // shares of this rank's tokens are joined
		rows, seq = joined(rows, y, joins, b.N, 1), joined(seq, y, joins, b.Positions, b.N)
	}
	if came&^b.Over != 0 {
		rows, seq = shared(rows, divides, 1), shared(seq, divides, b.N)
	}
	if y.at = (place{Of: x.at.Of}); y.at.Of == 0 && is&b.Over != 0 {
		y.at.Of = t.know(*b)
	}
	if y.at.Of == 0 {
		y.at = layout.Constant(0, 0).WithCut(cut)
		return
	}
	y.at = y.at.With(rows, seq).WithCut(cut)
}

// movedSpot returns where rows are that ranks exchanged: lost says that this rank has those of all ranks now, came that it has its own.
func movedSpot(s layout.Spot, y *header, n int, lost, came bool, divides int) layout.Spot {
	switch {
	case came && divides >= 0 && y.dims[divides] == n:
		return layout.NewSpot(1<<divides, layout.Exact, 1)
	case came && divides >= 0:
		return layout.NewSpot(1<<divides, layout.Loose, orderOfShares)
	case lost:
		return layout.Spot{}
	}
	return s
}

// orderOfShares is the order of a rank's share of the tokens of this rank's rows.
const orderOfShares = 1

// joined returns where rows are after their shares along dimension d were joined.
func joined(s layout.Spot, y *header, d, n, outer int) layout.Spot {
	if d >= 0 && s == layout.NewSpot(1<<d, layout.Loose, orderOfShares) && (n == 0 || y.dims[d]%(n*max(outer, 1)) == 0) {
		return layout.NewSpot(1<<d, layout.Exact, max(outer, 1))
	}
	return s
}

// shared returns where rows are after they were divided along dimension d. Shares of what is not row after row have no known order.
func shared(s layout.Spot, d, outer int) layout.Spot {
	switch {
	case d < 0 || s.Dims()>>d&1 == 0:
		return s
	case s.Mode() == layout.Exact && s.Outer() == outer:
		return layout.NewSpot(s.Dims(), layout.Loose, orderOfShares)
	}
	return layout.NewSpot(s.Dims(), layout.Loose, 0)
}
