package ckpt

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/ringo-ml/ringo/tensor"
)

// part is what a rank holds of a tensor: the elements lo to hi-1 of its boxes, counted through the boxes in order.
type part struct {
	shape  []int
	boxes  []tensor.Box // never empty
	lo, hi int
}

// newPart checks boxes and a flat range for a tensor of this shape, and returns them as a part.
func newPart(shape []int, boxes []tensor.Box, flat [2]int) (part, error) {
	p := part{shape: shape, boxes: boxes, lo: flat[0], hi: flat[1]}
	if len(boxes) == 0 {
		p.boxes = []tensor.Box{{Lo: make([]int, len(shape)), Hi: shape}}
	}
	n := 0
	for _, b := range p.boxes {
		if len(b.Lo) != len(shape) || len(b.Hi) != len(shape) {
			return p, fmt.Errorf("a box from %v to %v in shape %v", b.Lo, b.Hi, shape)
		}
		for i := range shape {
			if b.Lo[i] < 0 || b.Lo[i] > b.Hi[i] || b.Hi[i] > shape[i] {
				return p, fmt.Errorf("a box from %v to %v in shape %v", b.Lo, b.Hi, shape)
			}
		}
		n += volume(b)
	}
	if flat == [2]int{} {
		p.hi = n
	}
	if p.lo < 0 || p.lo > p.hi || p.hi > n {
		return p, fmt.Errorf("elements %d to %d of boxes with %d", p.lo, p.hi, n)
	}
	return p, nil
}

// heldPart is the part that a shard describes, of which the rank holds n elements. A zero Flat means all elements; only
// n shows that a rank holds none.
func heldPart(shape []int, s tensor.Shard, n int) (part, error) {
	p, err := newPart(shape, s.Boxes, s.Flat)
	if err == nil && n == 0 {
		p.hi = p.lo
	}
	if err == nil && p.len() != n {
		err = fmt.Errorf("the shard describes %d elements, the tensor has %d", p.len(), n)
	}
	return p, err
}

// wholePart is the whole tensor as one part.
func wholePart(shape []int) part {
	p, err := newPart(shape, nil, [2]int{})
	if err != nil {
		panic(err) // shapes were checked before
	}
	return p
}

func volume(b tensor.Box) int {
	n := 1
	for i := range b.Lo {
		n *= b.Hi[i] - b.Lo[i]
	}
	return n
}

// len returns the number of elements.
func (p part) len() int { return p.hi - p.lo }

// whole reports whether the part is the whole tensor, in its order.
func (p part) whole() bool {
	return len(p.boxes) == 1 && p.lo == 0 && p.hi == volume(p.boxes[0]) && p.hi == product(p.shape)
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func (p part) equal(q part) bool {
	return p.lo == q.lo && p.hi == q.hi && slices.EqualFunc(p.boxes, q.boxes, sameBox)
}

func sameBox(a, b tensor.Box) bool { return slices.Equal(a.Lo, b.Lo) && slices.Equal(a.Hi, b.Hi) }

// segment is a range of the elements of one box, and the index of its first element in a part.
type segment struct {
	box    tensor.Box
	lo, hi int
	at     int
}

// segments divides a part by its boxes.
func (p part) segments() (list []segment) {
	first := 0 // of the box
	for _, b := range p.boxes {
		end := first + volume(b)
		if lo, hi := max(p.lo, first), min(p.hi, end); lo < hi {
			list = append(list, segment{b, lo - first, hi - first, lo - p.lo})
		}
		first = end
	}
	return list
}

// slice returns n elements from at on, counted as in p. They must be in one segment of p.
func (p part) slice(at, n int) part {
	for _, s := range p.segments() {
		if lo := s.lo + at - s.at; s.at <= at && lo+n <= s.hi {
			return part{p.shape, []tensor.Box{s.box}, lo, lo + n}
		}
	}
	return part{shape: p.shape} // empty
}

// find returns the index in p of the first element of q, if one segment of p contains all of q.
func (p part) find(q part) (at int, ok bool) {
	want := q.segments()
	if len(want) != 1 {
		return 0, false
	}
	for _, s := range p.segments() {
		if s.lo <= want[0].lo && want[0].hi <= s.hi && sameBox(s.box, want[0].box) {
			return s.at + want[0].lo - s.lo, true
		}
	}
	return 0, false
}

// runs yields the runs of consecutive elements, in the part's order: the first element in the whole tensor, and the
// number.
func (p part) runs() iter.Seq2[int, int] {
	return func(yield func(at, n int) bool) {
		skip, left := p.lo, p.len()
		for _, b := range p.boxes {
			if v := volume(b); skip >= v {
				skip -= v
				continue
			}
			if left == 0 || !p.boxRuns(b, &skip, &left, yield) {
				return
			}
		}
	}
}

// boxRuns yields the runs of a box. It skips the first skip elements, and stops after left elements.
func (p part) boxRuns(b tensor.Box, skip, left *int, yield func(at, n int) bool) bool {
	inner := len(p.shape) // from this dimension on, the box is as wide as the tensor
	run := 1
	for inner > 0 && b.Lo[inner-1] == 0 && b.Hi[inner-1] == p.shape[inner-1] {
		inner--
		run *= p.shape[inner]
	}
	stride := run // of dimension inner-1
	if inner > 0 {
		inner--
		run *= b.Hi[inner] - b.Lo[inner]
	}
	for row := *skip / run; *left > 0 && row < volume(b)/run; row++ {
		at, rest, step := 0, row, stride
		if inner < len(p.shape) {
			at = b.Lo[inner] * stride
			step *= p.shape[inner]
		}
		for d := inner - 1; d >= 0; d-- {
			width := b.Hi[d] - b.Lo[d]
			at += (b.Lo[d] + rest%width) * step
			rest /= width
			step *= p.shape[d]
		}
		from := *skip % run
		n := min(run-from, *left)
		*skip, *left = 0, *left-n
		if !yield(at+from, n) {
			return false
		}
	}
	return true
}

// maxBoxes is the largest number of boxes of a tensor, because tile compares each one with each other.
const maxBoxes = 4096

// tile verifies that the parts have every element of the tensor exactly once: parts with the same boxes must divide
// their elements, and the boxes must divide the tensor.
func tile(shape []int, parts []part) error {
	type group struct {
		boxes []tensor.Box
		flats [][2]int
	}
	groups := map[string]*group{}
	var all []tensor.Box
	for _, p := range parts {
		if p.len() == 0 {
			continue
		}
		key := fmt.Sprint(p.boxes)
		g := groups[key]
		if g == nil {
			g = &group{boxes: p.boxes}
			groups[key] = g
			all = append(all, slices.DeleteFunc(slices.Clone(p.boxes), func(b tensor.Box) bool { return volume(b) == 0 })...)
		}
		g.flats = append(g.flats, [2]int{p.lo, p.hi})
	}
	if len(all) > maxBoxes {
		return fmt.Errorf("%d boxes; at most %d are allowed", len(all), maxBoxes)
	}
	sum := 0
	for _, g := range groups {
		n := 0
		for _, b := range g.boxes {
			n += volume(b)
		}
		sort.Slice(g.flats, func(i, j int) bool { return g.flats[i][0] < g.flats[j][0] })
		end := 0
		for _, f := range g.flats {
			switch {
			case f[0] > end:
				return fmt.Errorf("nobody has elements %d to %d of the boxes %v", end, f[0], g.boxes)
			case f[0] < end:
				return fmt.Errorf("elements %d to %d of the boxes %v are there twice", f[0], min(end, f[1]), g.boxes)
			}
			end = f[1]
		}
		if end != n {
			return fmt.Errorf("nobody has elements %d to %d of the boxes %v", end, n, g.boxes)
		}
		sum += n
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if overlap(a, b) {
				return fmt.Errorf("the boxes %v and %v overlap", a, b)
			}
		}
	}
	if sum != product(shape) {
		return fmt.Errorf("the boxes have %d of %d elements", sum, product(shape))
	}
	return nil
}

func overlap(a, b tensor.Box) bool {
	for i := range a.Lo {
		if a.Hi[i] <= b.Lo[i] || b.Hi[i] <= a.Lo[i] {
			return false
		}
	}
	return true
}
