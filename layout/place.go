package layout

// Place says in which dimensions of a tensor the rows of a batch are, the positions of their sequences, and what an axis has cut. The zero
// Place: not in any. It is comparable, and has 8 bytes.
type Place struct {
	Of       uint8 // the number of the batch in a list of the caller; 0: none
	cut      uint8 // dimensions, as a bit mask
	row, seq uint8 // without a batch, row is Flat, and outRow the ID
	outRow   uint16
	outSeq   uint16
}

// Constant returns the place of what has no rows and is the same on all ranks. It repeats one element along the dimensions in flat. id is a
// number by which copies of it are recognized, or 0.
func Constant(flat uint8, id uint16) Place { return Place{row: flat, outRow: id} }

// Bits returns p as a number, and PlaceOf is the reverse.
func (p Place) Bits() uint64 {
	return uint64(p.Of) | uint64(p.cut)<<8 | uint64(p.row)<<16 | uint64(p.seq)<<24 | uint64(p.outRow)<<32 | uint64(p.outSeq)<<48
}

// PlaceOf is the reverse of Bits.
func PlaceOf(bits uint64) Place {
	return Place{uint8(bits), uint8(bits >> 8), uint8(bits >> 16), uint8(bits >> 24), uint16(bits >> 32), uint16(bits >> 48)}
}

// Flat returns the dimensions along which a constant repeats one element.
func (p Place) Flat() uint8 { return either(p.Of != 0, p.row, 0) }

// Repeated are all dimensions, of a constant whose elements are equal. Zeros says that they are 0, too.
const (
	Repeated = dimBits
	Zeros    = 255
)

// Changed returns p of other values, each made of one element: they are not zeros, and not the indices that they were.
func (p Place) Changed() Place {
	if p.Of == 0 {
		p.row, p.outRow = p.row&Repeated, 0
	}
	return p
}

// ID returns the number of a constant.
func (p Place) ID() int { return either(p.Of != 0, int(p.outRow), 0) }

// Rows returns where the rows are.
func (p Place) Rows() Spot { return either(p.Of == 0, Spot{p.row, p.outRow}, Spot{}) }

// Seq returns where the positions are.
func (p Place) Seq() Spot { return Spot{p.seq, p.outSeq} }

// Cut returns the dimensions of which the ranks of an axis of kind Cut have different parts, as a bit mask.
func (p Place) Cut() uint8 { return p.cut }

func (p Place) cutSpot() Spot { return NewSpot(p.cut, Loose, 0) }

// With returns p with other rows and positions.
func (p Place) With(rows, seq Spot) Place {
	p.row, p.outRow, p.seq, p.outSeq = rows.at, rows.outer, seq.at, seq.outer
	return p
}

// WithCut returns p with other dimensions that are cut.
func (p Place) WithCut(dims uint8) Place {
	p.cut = dims
	return p
}

// Ordered reports whether equal places have equal rows: none has an order that nothing else has.
func (p Place) Ordered() bool {
	return p.Of == 0 || (p.row < uint8(Loose)<<6 || p.outRow != 0) && (p.seq < uint8(Loose)<<6 || p.outSeq != 0)
}

// Dims returns the dimensions of rows and positions.
func (p Place) Dims() uint8 { return p.Rows().Dims() | p.Seq().Dims() }

// Reshape returns p in a tensor of the same elements in the same order. Dimension free of it was computed from the others; −1: none.
func (p Place) Reshape(from, to []int, free int, b *Batch) Place {
	p.cut = p.cutSpot().reshape(from, to, 0).Dims()
	if p.Of == 0 { // of a constant, what is known of the leading dimension stays, if that does
		if p.row&Repeated != Repeated {
			p.row &= either[uint8](len(from) > 0 && len(to) > 0 && from[0] == to[0], 0, 1)
		}
		return p
	}
	return p.With(p.Rows().reshapeRows(from, to, free, b.N), p.Seq().reshape(from, to, b.Positions))
}

// Grouped returns p after a Reshape that gives the groups of b.Group rows a dimension, with the groups as its rows: what else a group has
// is like features. One group may be in several dimensions of one element: it is in the one that was free, or the outermost. If another one
// was free, a 1 may be no number of groups, and what is behind it all rows of this rank: it counts only in front of b.Group. The number of
// the batch, b.Groups(), is for the caller to set. ok is false for another Reshape.
func (p Place) Grouped(from, to []int, free int, b *Batch) (_ Place, ok bool) {
	s, d := p.Rows(), -1
	for k := 0; b.Group > 1 && b.Stride == 1 && s.Mode() == Exact && s.Outer() == 1 && d < 0 && k < len(to); k++ {
		front, behind := product(to[:k]) == product(from[:s.first()]), product(to[k+1:]) == b.Group*product(from[s.first()+1:])
		meant := b.N != b.Group || free < 0 || k == free || k+1 < len(to) && to[k+1] == b.Group
		if front && meant && to[k]*b.Group == b.N && (behind || b.N > 0) { // without rows, to[k] says nothing
			d = k
		}
	}
	if d < 0 {
		return p, false
	}
	p = p.Reshape(from, to, d, b)
	return p.With(NewSpot(1<<d, Exact, 1), p.Seq()), true
}

// Permute returns p where dimension i of the output is dimension perm[i] of the input.
func (p Place) Permute(perm []int) Place {
	if (p.row|p.seq)&dimBits|p.cut <= 1 && len(perm) > 0 && perm[0] == 0 { // nothing moves
		return p
	}
	p.cut = p.cutSpot().permute(perm).Dims()
	if p.Of == 0 {
		if p.row&Repeated != Repeated {
			p.row = NewSpot(p.row, Loose, 0).permute(perm).Dims()
		}
		return p
	}
	return p.With(p.Rows().permute(perm), p.Seq().permute(perm))
}

// Slice returns p in elements lo to hi of dimension d, which has size elements.
func (p Place) Slice(d, lo, hi, size int, b *Batch) Place {
	if p.Dims()>>d == 0 {
		return p
	}
	return p.With(p.Rows().slice(d, lo, hi, size, b.N), p.Seq().slice(d, lo, hi, size, b.Positions))
}

// Pad returns p after before elements were put in front of dimension d, and others behind it, so that it has size.
func (p Place) Pad(d, before, size int, b *Batch) Place {
	return p.With(p.Rows().pad(d, before, size, b.N), p.Seq().pad(d, before, size, b.Positions))
}

// Pick returns p in elements of dimension d, of size, that were picked. What is picked with the same indices has the same order; 0 is an
// order that nothing else has.
func (p Place) Pick(d, size, order int) Place {
	return p.With(p.Rows().pick(d, size, order), p.Seq().pick(d, size, order))
}

// Shift returns p in a tensor with so many more leading dimensions.
func (p Place) Shift(by int) Place {
	if by == 0 {
		return p
	}
	p.cut <<= by
	return p.With(p.Rows().shift(by), p.Seq().shift(by))
}

// Covered says what an operation over some dimensions does to rows, positions, or parts of features: All of their dimensions are among
// them, or Some of them.
type Covered struct{ All, Some bool }

// Reduce returns p after the dimensions in mask are gone. rows, seq and cut say what was among them. What was covered is in no dimension of
// the result: the sum over All is a sum over this rank's rows, and what else an operation makes of them has no meaning for other ranks.
func (p Place) Reduce(mask uint8, rank int) (_ Place, rows, seq, cut Covered) {
	r, allR, someR := p.Rows().reduce(mask, rank)
	s, allS, someS := p.Seq().reduce(mask, rank)
	c, allC, someC := p.cutSpot().reduce(mask, rank)
	p.cut = c.Dims()
	return p.With(r, s), Covered{allR, someR}, Covered{allS, someS}, Covered{allC, someC}
}
