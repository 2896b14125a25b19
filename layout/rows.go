package layout

import "fmt"

// Span is a part of a dimension: elements First, First+1, … of Total. The zero Span is the whole dimension.
type Span struct{ First, Total int }

// Holds reports whether n elements from First on are inside.
func (s Span) Holds(n int) bool {
	return s.Total == 0 || s.First >= 0 && n >= 0 && s.First+n <= s.Total
}

// Spans is a part of a sequence of Total positions: some that follow each other, from First on, or two runs of them. Then those from the
// Break-th on are Skip positions later. The zero Spans is the whole sequence.
type Spans struct{ First, Total, Break, Skip int }

// Holds reports whether n positions are inside, of which each run has at least one.
func (s Spans) Holds(n int) bool {
	two := s.Skip > 0 && 0 < s.Break && s.Break < n
	return (two || s.Skip == 0 && s.Break == 0) && Span{s.First, s.Total}.Holds(n+s.Skip)
}

// Slice returns elements lo to hi-1 of s.
func (s Spans) Slice(lo, hi int) Spans {
	s.First, s.Break = s.First+lo, s.Break-lo
	if s.Break <= 0 {
		s.First += s.Skip
	}
	if s.Skip == 0 || s.Break <= 0 || hi <= s.Break+lo {
		s.Break, s.Skip = 0, 0
	}
	return s
}

// Rows says which rectangle of the global batch a tensor holds. Its leading dimension holds rows First, First+Stride, … of Total. If Seq is
// set, dimension 1 holds a part of each row's sequence; otherwise rows are whole. Losses divide by the size of the whole batch, dropout
// depends on the place in it, and positions are those of Seq.
type Rows struct {
	First, Stride, Total int
	Seq                  Spans
	Over                 Axes // axes of the job along which ranks hold other rows, or other parts of the sequence
	SeqOver              Axes // those of Over along which they hold other parts of the sequence
	Head, Tail           Axes // those of Over along which this rank is the first, and a later one; neither: not known
	// Number says which batch of the training it is, from 1 on; 0: not known. Ranks must not add up different ones. Microbatches of one step
	// need it if ranks divide them in other ways.
	Number int
	Group  int // so many rows that follow each other belong together and are never divided; 0: 1
}

// Batch is the part of the global batch that a step works on.
type Batch struct {
	Rows
	N, Positions int  // number of this rank's rows; its positions in each, or 0 if rows are whole
	Mixed        bool // rows of several batches: their places in the global batch are not known
}

// Axes returns the axes along which ranks hold other rows, or, with seq, other positions.
func (b *Batch) Axes(seq bool) Axes { return either(seq, b.Over&^b.SeqOver, b.SeqOver) }

// Groups returns the batch whose rows are the groups of b's rows.
func (b Batch) Groups() Batch {
	g := max(b.Group, 1)
	b.First, b.Total, b.N, b.Group = b.First/g, b.Total/g, b.N/g, 0
	return b
}

// Related reports whether two batches are the same rows, of which one may count groups.
func (b *Batch) Related(c *Batch) bool {
	return b.Over == c.Over && b.First*c.Total == c.First*b.Total && b.N*c.Total == c.N*b.Total
}

// Count returns how many elements the global batch has where this rank has n, in a tensor with an equal number for each row (and position)
// in place p. It is at least 1. ok is false if p does not say that all rows are there.
func (b *Batch) Count(n int, p Place) (count int, ok bool) {
	if alone := b.Total == b.N && b.Seq.Total == b.Positions; alone || b.Total == 0 || n == 0 {
		return max(n, 1), true // one rank has them all
	}
	each, total := b.N, b.Total
	if p.Seq().Dims() != 0 && b.Positions > 0 {
		each, total = each*b.Positions, total*b.Seq.Total
	}
	if r, s := p.Rows(), p.Seq(); r.Dims() == 0 || r.Mode() != Exact || s.Mode() != Exact || each == 0 || n%each != 0 {
		return 0, false
	}
	return n / each * total, true
}

// String says how much of the batch it is.
func (b Batch) String() string {
	if b.Positions == 0 {
		return fmt.Sprintf("%d rows of %d", b.N, b.Total)
	}
	return fmt.Sprintf("%d rows of %d, %d positions of %d", b.N, b.Total, b.Positions, b.Seq.Total)
}
