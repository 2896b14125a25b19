package layout

import (
	"math/bits"
	"slices"
)

// A Reshape keeps the index F of each of the N elements. The row of an element is a digit of F: F / (N / (left·n)) % n, where left is the
// number of steps of what is to the left of the digit. So it is enough to find left in the old dimensions, and the digit in the new ones.

// reshape returns s in a tensor of the same elements with other dimensions; n is the number of rows.
func (s Spot) reshape(from, to []int, n int) Spot {
	if s.Dims() == 0 || len(to) == 0 {
		return Spot{}
	}
	first, last := s.first(), s.last()
	if len(to) > last && slices.Equal(from[:last+1], to[:last+1]) {
		return s
	}
	if by := len(to) - len(from); from[first] == n && first+by >= 0 && slices.Equal(from[first:], to[first+by:]) {
		return s.shift(by)
	}
	if s.Mode() == Exact {
		return digit(to, product(from[:first])*s.Outer(), n)
	}
	var dims uint8
	for d := first; d <= last; d++ {
		if s.Dims()>>d&1 != 0 {
			left := product(from[:d])
			if k := whole(to, left, from[d]); k >= 0 && s.single(d) {
				return NewSpot(1<<k, s.Mode(), s.Outer())
			}
			dims |= touched(to, left, from[d])
		}
	}
	return s.mixed(dims, opReshape, to...)
}

// reshapeRows is reshape of rows. [time·rows, features] becomes [time, rows, features] also if there is one row. Where one row could be in
// either of two dimensions of one element, it is in the one that was free, because other ranks have another number of rows there.
func (s Spot) reshapeRows(from, to []int, free, n int) Spot {
	if outermost := (Spot{1, 1}); s == outermost && n > 1 && len(to) > 0 && to[0] > 0 && to[0]%n == 0 {
		return s
	}
	if by := len(to) - len(from); n == 1 && by > 0 && s.Dims() != 0 && free == s.first()+by && slices.Equal(from[s.first():], to[free:]) {
		return s.shift(by)
	}
	if n == 1 && s.Dims() != 0 && s.Mode() == Exact && from[s.first()] != 1 {
		if d := whole(to, product(from[:s.first()])*s.Outer(), 1); d > 0 && d < len(to)-1 {
			return NewSpot(1<<d, Exact, 1)
		}
	}
	return s.reshape(from, to, n)
}

// digit returns where a digit of n steps is, with so many steps to the left. In the first dimension that it touches, and those up to the
// last, it is whole: steps to the left of a dimension that it does not touch divide left, or are multiples of left·n.
func digit(to []int, left, n int) Spot {
	if d := whole(to, left, n); d >= 0 {
		return NewSpot(1<<d, Exact, 1)
	}
	dims := touched(to, left, n)
	first, last := bits.TrailingZeros8(dims), bits.Len8(dims)-1
	outer := max(left/max(product(to[:first]), 1), 1)
	if product(to[first:last+1])%outer != 0 { // one row, and a digit of one step
		outer = 1
	}
	return NewSpot(dims, Exact, outer)
}

// whole returns the dimension of n elements with so many steps to the left, or −1.
func whole(to []int, left, n int) int {
	l := 1
	for d, size := range to {
		if l == left && size == n && left > 0 { // else there are no elements
			return d
		}
		l *= size
	}
	return -1
}

// touched returns the dimensions on which a digit of n steps depends. If it depends on none, having one step, it is the outermost one that
// it can be in: which is not known. In a tensor without elements, it is the first dimension that has none.
func touched(to []int, left, n int) (dims uint8) {
	l := 1
	for d, size := range to {
		r := l * size
		switch {
		case size == 0:
			return dims | 1<<d
		case left*n > 0 && r > 0 && n > 1 && size > 1 && left%r != 0 && l%(left*n) != 0:
			dims |= 1 << d
		}
		l = r
	}
	for d, l := 0, 1; dims == 0; d++ {
		if l *= to[d]; left <= l || d == len(to)-1 {
			dims = 1 << d
		}
	}
	return dims
}
