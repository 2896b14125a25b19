package nn

import "github.com/ringo-ml/ringo/tensor"

// Positions adds a learned vector to each position of a sequence, as GPT-2 does.
type Positions struct {
	W *tensor.Param `nn:"weight"` // [positions, d]
}

// NewPositions returns vectors of d features for so many positions, normal with GPT-2's standard deviation 0.02.
func NewPositions(positions, d int) *Positions {
	return &Positions{W: tensor.NewParam(tensor.NormalInit(0, 0.02), positions, d)}
}

// Forward returns x [batch, time, d] plus the vectors of its positions. The first ones of each sequence are at position first, which
// is the number of tokens that a cache holds, else 0. Where the step has a part of each sequence (tensor.Rows.Seq), that of
// each position in it comes on top. It panics where there is no vector for a position.
func (p *Positions) Forward(x T, first int) T {
	t := tapeOf(x)
	w := t.Use(p.W)
	if x.NDim() != 3 || x.Dim(2) != w.Dim(1) {
		fail("Positions", "%v is not [batch, time, %d]", x.Shape(), w.Dim(1))
	}
	at := t.Spans(x)
	first += at.First
	end := first + x.Dim(1) + at.Skip
	if first < 0 || end > w.Dim(0) {
		fail("Positions", "%v: positions %d to %d of %d", x.Shape(), first, end-1, w.Dim(0))
	}
	table := w.Slice(0, first, end)
	if at.Skip > 0 {
		table = tensor.Concat(0, table.Slice(0, 0, at.Break), table.Slice(0, at.Break+at.Skip, end-first))
	}
	return x.Add(tensor.OfPositions(table, x))
}
