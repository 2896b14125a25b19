package layout

import (
	"fmt"
	"iter"
	"slices"
)

// Box is a rectangular part of a tensor: elements [Lo[i], Hi[i]) of each dimension.
type Box struct{ Lo, Hi []int }

// WholeBox returns all of a tensor of this shape.
func WholeBox(dims []int) Box { return Box{make([]int, len(dims)), slices.Clone(dims)} }

// Len returns the number of elements.
func (b Box) Len() int {
	n := 1
	for i := range b.Lo {
		n *= b.Hi[i] - b.Lo[i]
	}
	return n
}

// Equal reports whether two boxes are the same.
func (b Box) Equal(c Box) bool { return slices.Equal(b.Lo, c.Lo) && slices.Equal(b.Hi, c.Hi) }

// Within returns an error unless b lies in a tensor of the given shape.
func (b Box) Within(dims []int) error {
	ok := len(b.Lo) == len(dims) && len(b.Hi) == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = 0 <= b.Lo[i] && b.Lo[i] <= b.Hi[i] && b.Hi[i] <= dims[i]
	}
	if !ok {
		return fmt.Errorf("a box from %v to %v in shape %v", b.Lo, b.Hi, dims)
	}
	return nil
}

// along returns elements lo to hi-1 of b, counted from its first one, along a dimension.
func (b Box) along(dim, lo, hi int) Box {
	d := Box{slices.Clone(b.Lo), slices.Clone(b.Hi)}
	d.Lo[dim], d.Hi[dim] = b.Lo[dim]+lo, b.Lo[dim]+hi
	return d
}

// Runs yields where elements lo to hi of boxes, counted through the boxes in order, are in a tensor of this shape, as runs of adjacent
// elements: the index of the first one, and their number.
func Runs(shape []int, boxes []Box, lo, hi int) iter.Seq2[int, int] {
	return func(yield func(first, n int) bool) {
		for _, b := range boxes {
			n := b.Len()
			if lo < n && hi > 0 && !b.runs(shape, max(lo, 0), min(hi, n), yield) {
				return
			}
			lo, hi = lo-n, hi-n
		}
	}
}

// runs yields the runs of elements lo to hi of b, and reports whether to go on.
func (b Box) runs(shape []int, lo, hi int, yield func(first, n int) bool) bool {
	d, inner := len(shape)-1, 1 // dimensions after d are whole
	for d >= 0 && b.Lo[d] == 0 && b.Hi[d] == shape[d] {
		d, inner = d-1, inner*shape[d]
	}
	run := inner
	if d >= 0 {
		run *= b.Hi[d] - b.Lo[d]
	}
	for lo < hi {
		row, skip := lo/run, lo%run
		n := min(run-skip, hi-lo)
		if !yield(b.at(shape, row, d, inner)+skip, n) {
			return false
		}
		lo += n
	}
	return true
}

// at returns the index in the whole of the first element of a row of b. A row is a run of adjacent elements; b has one for each index of
// the dimensions before d. inner is the number of elements of the dimensions after d.
func (b Box) at(shape []int, row, d, inner int) int {
	if d < 0 {
		return 0
	}
	at, step := b.Lo[d]*inner, inner*shape[d]
	for i := d - 1; i >= 0; i-- {
		n := b.Hi[i] - b.Lo[i]
		at += (b.Lo[i] + row%n) * step
		row, step = row/n, step*shape[i]
	}
	return at
}
