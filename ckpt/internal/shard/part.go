package shard

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/ringo-ml/ringo/tensor"
)

// Part is what a rank holds of a tensor: the elements lo to hi-1 of its boxes, counted through the boxes in order.
type Part struct {
	Shape  []int
	Boxes  []tensor.Box // never empty
	Lo, Hi int
}

// NewPart checks boxes and a flat range for a tensor of this shape, and returns them as a part.
func NewPart(shape []int, boxes []tensor.Box, flat [2]int) (Part, error) {
	p := Part{Shape: shape, Boxes: boxes, Lo: flat[0], Hi: flat[1]}
	if len(boxes) == 0 {
		p.Boxes = []tensor.Box{{Lo: make([]int, len(shape)), Hi: shape}}
	}
	n := 0
	for _, b := range p.Boxes {
		if len(b.Lo) != len(shape) || len(b.Hi) != len(shape) {
			return p, fmt.Errorf("a box from %v to %v in shape %v", b.Lo, b.Hi, shape)
		}
		for i := range shape {
			if b.Lo[i] < 0 || b.Lo[i] > b.Hi[i] || b.Hi[i] > shape[i] {
				return p, fmt.Errorf("a box from %v to %v in shape %v", b.Lo, b.Hi, shape)
			}
		}
		n += Volume(b)
	}
	if flat == [2]int{} {
		p.Hi = n
	}
	if p.Lo < 0 || p.Lo > p.Hi || p.Hi > n {
		return p, fmt.Errorf("elements %d to %d of boxes with %d", p.Lo, p.Hi, n)
	}
	return p, nil
}

// HeldPart is the part that a shard describes, of which the rank holds n elements. A zero Flat means all elements; only
// n shows that a rank holds none.
func HeldPart(shape []int, s tensor.Shard, n int) (Part, error) {
	p, err := NewPart(shape, s.Boxes, s.Flat)
	if err == nil && n == 0 {
		p.Hi = p.Lo
	}
	if err == nil && p.Len() != n {
		err = fmt.Errorf("the shard describes %d elements, the tensor has %d", p.Len(), n)
	}
	return p, err
}

// WholePart is the whole tensor as one part.
func WholePart(shape []int) Part {
	p, err := NewPart(shape, nil, [2]int{})
	if err != nil {
		panic(err) // shapes were checked before
	}
	return p
}

// Volume returns the number of elements of a box.
func Volume(b tensor.Box) int {
	n := 1
	for i := range b.Lo {
		n *= b.Hi[i] - b.Lo[i]
	}
	return n
}

// Len returns the number of elements.
func (p Part) Len() int { return p.Hi - p.Lo }

// Whole reports whether the part is the whole tensor, in its order.
func (p Part) Whole() bool {
	return len(p.Boxes) == 1 && p.Lo == 0 && p.Hi == Volume(p.Boxes[0]) && p.Hi == Product(p.Shape)
}

// Product returns the number of elements of a shape.
func Product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// Equal reports whether two parts have the same boxes and range.
func (p Part) Equal(q Part) bool {
	return p.Lo == q.Lo && p.Hi == q.Hi && slices.EqualFunc(p.Boxes, q.Boxes, SameBox)
}

// SameBox reports whether two boxes are equal.
func SameBox(a, b tensor.Box) bool { return slices.Equal(a.Lo, b.Lo) && slices.Equal(a.Hi, b.Hi) }

// segment is a range of the elements of one box, and the index of its first element in a part.
type segment struct {
	Box    tensor.Box
	Lo, Hi int
	At     int
}

// Segments divides a part by its boxes.
func (p Part) Segments() (list []segment) {
	first := 0 // of the box
	for _, b := range p.Boxes {
		end := first + Volume(b)
		if lo, hi := max(p.Lo, first), min(p.Hi, end); lo < hi {
			list = append(list, segment{b, lo - first, hi - first, lo - p.Lo})
		}
		first = end
	}
	return list
}

// Slice returns n elements from at on, counted as in p. They must be in one segment of p.
func (p Part) Slice(at, n int) Part {
	for _, s := range p.Segments() {
		if lo := s.Lo + at - s.At; s.At <= at && lo+n <= s.Hi {
			return Part{p.Shape, []tensor.Box{s.Box}, lo, lo + n}
		}
	}
	return Part{Shape: p.Shape} // empty
}

// Find returns the index in p of the first element of q, if one segment of p contains all of q.
func (p Part) Find(q Part) (at int, ok bool) {
	want := q.Segments()
	if len(want) != 1 {
		return 0, false
	}
	for _, s := range p.Segments() {
		if s.Lo <= want[0].Lo && want[0].Hi <= s.Hi && SameBox(s.Box, want[0].Box) {
			return s.At + want[0].Lo - s.Lo, true
		}
	}
	return 0, false
}

// Runs yields the runs of consecutive elements, in the part's order: the first element in the whole tensor, and the
// number.
func (p Part) Runs() iter.Seq2[int, int] {
	return func(yield func(at, n int) bool) {
		skip, left := p.Lo, p.Len()
		for _, b := range p.Boxes {
			if v := Volume(b); skip >= v {
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
func (p Part) boxRuns(b tensor.Box, skip, left *int, yield func(at, n int) bool) bool {
	inner := len(p.Shape) // from this dimension on, the box is as wide as the tensor
	run := 1
	for inner > 0 && b.Lo[inner-1] == 0 && b.Hi[inner-1] == p.Shape[inner-1] {
		inner--
		run *= p.Shape[inner]
	}
	stride := run // of dimension inner-1
	if inner > 0 {
		inner--
		run *= b.Hi[inner] - b.Lo[inner]
	}
	for row := *skip / run; *left > 0 && row < Volume(b)/run; row++ {
		at, rest, step := 0, row, stride
		if inner < len(p.Shape) {
			at = b.Lo[inner] * stride
			step *= p.Shape[inner]
		}
		for d := inner - 1; d >= 0; d-- {
			width := b.Hi[d] - b.Lo[d]
			at += (b.Lo[d] + rest%width) * step
			rest /= width
			step *= p.Shape[d]
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

// Tile verifies that the parts have every element of the tensor exactly once: parts with the same boxes must divide
// their elements, and the boxes must divide the tensor.
func Tile(shape []int, parts []Part) error {
	type group struct {
		boxes []tensor.Box
		flats [][2]int
	}
	groups := map[string]*group{}
	var all []tensor.Box
	for _, p := range parts {
		if p.Len() == 0 {
			continue
		}
		key := fmt.Sprint(p.Boxes)
		g := groups[key]
		if g == nil {
			g = &group{boxes: p.Boxes}
			groups[key] = g
			all = append(all, slices.DeleteFunc(slices.Clone(p.Boxes), func(b tensor.Box) bool { return Volume(b) == 0 })...)
		}
		g.flats = append(g.flats, [2]int{p.Lo, p.Hi})
	}
	if len(all) > maxBoxes {
		return fmt.Errorf("%d boxes; at most %d are allowed", len(all), maxBoxes)
	}
	sum := 0
	for _, g := range groups {
		n := 0
		for _, b := range g.boxes {
			n += Volume(b)
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
	if sum != Product(shape) {
		return fmt.Errorf("the boxes have %d of %d elements", sum, Product(shape))
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
