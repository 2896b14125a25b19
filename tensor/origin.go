package tensor

import "github.com/ringo-ml/ringo/layout"

// Origin is what the elements of a tensor do not say, and another rank must know to go on with it: the types, where the rows of the batch
// are in it, which rows these are, and the Tokens of its tape. The number of the batch (Rows.Number) is not part of it. It is comparable:
// in each step, a stage of a pipeline sends tensors of the same Origin.
type Origin struct {
	Types  Types
	at     place
	rows   batch // if at has any
	tokens int
}

// OriginLen is the number of elements of Origin.Ints.
const OriginLen = 12

// Origin returns what another rank must know of x, which is on a tape.
func (x Tensor) Origin() Origin {
	t := tapeOf("Origin", x)
	h := t.arg(x)
	o := Origin{Types: h.ty, at: place{}.WithCut(h.at.Cut()), tokens: t.tokens}
	if h.at.Of != 0 {
		o.at, o.rows = h.at, *t.batchAt(h.at)
		o.at.Of, o.rows.Number = 1, 0
	}
	return o
}

// N returns how many rows of the batch this rank has; 0: none, or it is not known.
func (o Origin) N() int { return o.rows.N }

// Ints returns o for sending to another rank, and OriginOf is the reverse.
func (o Origin) Ints() (list [OriginLen]int64) {
	for i, x := range pack(o.rows) {
		list[i] = int64(x)
	}
	b := o.Types.Bytes()
	list[8], list[9] = int64(b[0])|int64(b[1])<<8|int64(b[2])<<16, int64(o.at.Bits())
	list[10], list[11] = int64(o.tokens), int64(b2i(o.rows.Mixed))
	return list
}

// OriginOf is the reverse of Origin.Ints. It returns an error for numbers that are no Origin.
func OriginOf(list [OriginLen]int64) (o Origin, err error) {
	var rows [8]int
	for i := range rows {
		rows[i] = int(list[i])
	}
	o.rows, o.at, o.tokens = unpack(rows), layout.PlaceOf(uint64(list[9])), int(list[10])
	o.rows.Mixed = list[11] != 0
	o.Types, err = TypesFromBytes([3]byte{byte(list[8]), byte(list[8] >> 8), byte(list[8] >> 16)})
	return o, err
}

// LeafOf is Leaf of a tensor of this Origin, which another rank sent, or another tape of this one has. If the tape has no rows yet, it
// learns them from it: no Input is needed for the sake of its Rows.
func (t *Tape) LeafOf(x Tensor, o Origin) Tensor {
	t.checkLeaf(x.hdr())
	in := t.leafOf(t.put(x).h, x.h).h
	t.agreement.Over |= o.Types.Differ()
	in.ty = o.Types
	if in.needs {
		in.ty = in.ty.With(in.ty.On(Replicated), Invariant)
	}
	if in.at = o.at; o.at.Of != 0 {
		in.at.Of = t.know(o.rows)
		if t.rows.Stride == 0 {
			t.rows = o.rows
			t.fed.Add(o.rows)
		}
	}
	if t.tokens == 0 {
		t.tokens = o.tokens
	}
	return in.tensor()
}
