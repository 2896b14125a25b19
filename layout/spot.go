package layout

import "math/bits"

// Mode says how a Spot holds rows (or positions).
type Mode uint8

// The modes. J is the index of an element in the dimensions of the Spot, taken together as one, of D elements.
const (
	Exact   Mode = iota // all rows, in order: D is Outer × rows × inner, and element J is of row J / inner % rows
	Portion             // some that follow each other: element J is of row Outer + J
	Loose               // some, in an order of its own: elements with equal indices in the dimensions of the Spot are of the same row
)

// Spot says in which dimensions of a tensor the rows of the batch are, or the positions of their sequences, and how. The zero Spot is: in
// none, each element belongs to all rows alike. [rows, features] has dimension 0 with Outer 1 and inner 1; in [rows·time, features] inner
// is time, and in [time·rows, features] Outer is time. Reshape may spread rows over several dimensions.
//
// Outer of a Loose Spot is the number of its order, a digest of the operations that made it: what was picked in the same way from the same
// rows has the same order. 0 is an order that nothing else has.
type Spot struct {
	at    uint8 // dimensions as a bit mask, and 64 × mode
	outer uint16
}

const dimBits = 63

// The operations that change an order, for its number.
const (
	opReshape = iota
	opPermute
	opSlice
	opPad
	opPick
	opConcat
)

// NewSpot returns a Spot in the dimensions whose bits are set in dims. If outer is too large to be stored, it is Loose.
func NewSpot(dims uint8, m Mode, outer int) Spot {
	switch {
	case dims&dimBits == 0:
		return Spot{}
	case outer < 0 || outer > 0xffff:
		m, outer = Loose, 0
	}
	return Spot{dims&dimBits | uint8(m)<<6, uint16(outer)}
}

// Dims returns the dimensions, as a bit mask.
func (s Spot) Dims() uint8 { return s.at & dimBits }

// Mode returns the mode.
func (s Spot) Mode() Mode { return Mode(s.at >> 6) }

// Outer is how often the rows repeat in their dimensions; of a Portion, the first row.
func (s Spot) Outer() int { return int(s.outer) }

// mixed returns s in these dimensions after an operation with these arguments that changed its order.
func (s Spot) mixed(dims uint8, op int, args ...int) Spot {
	if s.Mode() == Loose && s.outer == 0 {
		return NewSpot(dims, Loose, 0)
	}
	h := uint32(2166136261)
	for _, k := range [3]int{op, int(s.at), int(s.outer)} {
		h = (h ^ uint32(k)) * 16777619
	}
	for _, k := range args {
		h = (h ^ uint32(k)) * 16777619
	}
	return NewSpot(dims, Loose, max(int(h>>16^h&0xffff), 1))
}

// first and last are the outermost and the innermost dimension. The Spot has one.
func (s Spot) first() int { return bits.TrailingZeros8(s.Dims()) }
func (s Spot) last() int  { return bits.Len8(s.Dims()) - 1 }

// single reports whether s is in dimension d alone.
func (s Spot) single(d int) bool { return s.Dims() == 1<<d }

// around reports whether d is between the first and the last dimension, so that J depends on its size.
func (s Spot) around(d int) bool { return s.Dims() != 0 && s.first() <= d && d <= s.last() }

// either returns a, or b if second says so: for example, what there is of rows, or of positions.
func either[T any](second bool, a, b T) T {
	if second {
		return b
	}
	return a
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// shift returns s in a tensor with so many more leading dimensions, or fewer.
func (s Spot) shift(by int) Spot {
	return NewSpot(s.Dims()<<max(by, 0)>>max(-by, 0), s.Mode(), s.Outer())
}

// permute returns s where dimension i of the output is dimension perm[i] of the input.
func (s Spot) permute(perm []int) Spot {
	if s.Dims() == 0 {
		return s
	}
	dims, last, ordered := uint8(0), -1, true
	for i, p := range perm {
		if s.Dims()>>p&1 != 0 {
			dims |= 1 << i
			ordered, last = ordered && p > last, p
		}
	}
	t := NewSpot(dims, s.Mode(), s.Outer())
	for i, p := range perm {
		ordered = ordered && (!t.around(i) || s.around(p)) // else another dimension has come between
	}
	if !ordered {
		return s.mixed(dims, opPermute, perm...)
	}
	return t
}

// slice returns s in elements lo to hi of dimension d, which has size elements; n is the number of rows.
func (s Spot) slice(d, lo, hi, size, n int) Spot {
	switch {
	case lo == 0 && hi == size || !s.around(d):
		return s
	case s.Mode() == Portion:
		return NewSpot(s.at, Portion, s.Outer()+lo)
	case s.Mode() == Exact && s.single(d) && s.outer > 0:
		if period := size / s.Outer(); period > 0 && hi > lo && lo%period == 0 && hi%period == 0 {
			return NewSpot(s.at, Exact, (hi-lo)/period)
		}
		if s.outer == 1 && size == n {
			return NewSpot(s.at, Portion, lo)
		}
	}
	return s.mixed(s.at, opSlice, d, lo, hi, size)
}

// pad returns s after elements without rows were put around those of dimension d: before of them in front. size is the new size.
func (s Spot) pad(d, before, size, n int) Spot {
	switch {
	case !s.around(d):
		return s
	case s.Mode() == Portion && s.Outer() == before && size == n:
		return NewSpot(s.at, Exact, 1)
	case s.Mode() == Portion && s.Outer() >= before && s.Outer()-before+size <= n:
		return NewSpot(s.at, Portion, s.Outer()-before)
	}
	return s.mixed(s.at, opPad, d, before, size)
}

// pick returns s in elements of dimension d, of size, that were picked in a given order.
func (s Spot) pick(d, size, order int) Spot {
	switch {
	case !s.around(d):
		return s
	case order == 0:
		return NewSpot(s.at, Loose, 0)
	}
	return s.mixed(s.at, opPick, d, size, order)
}

// reduce returns s without the dimensions in mask. all says that mask has all of s's dimensions, some that it has one.
func (s Spot) reduce(mask uint8, rank int) (_ Spot, all, some bool) {
	if s.Dims() < mask&-mask { // of dimensions in front
		return s, false, false
	}
	if in := s.Dims() & mask; in != 0 {
		return Spot{}, in == s.Dims(), true
	}
	dims, k := uint8(0), 0
	for d := range rank {
		if mask>>d&1 == 0 {
			dims |= s.Dims() >> d & 1 << k
			k++
		}
	}
	return NewSpot(dims, s.Mode(), s.Outer()), false, false
}
