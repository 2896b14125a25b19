package shard

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/ringo-ml/ringo/layout"
)

// Part is what a rank holds of a tensor: the elements lo to hi-1 of its boxes, counted through the boxes in order.
type Part struct {
	Shape  []int
	Boxes  []layout.Box // never empty
	Lo, Hi int
}

// NewPart checks boxes and a flat range for a tensor of this shape, and returns them as a part.
func NewPart(shape []int, boxes []layout.Box, flat [2]int) (Part, error) {
	p := Part{Shape: shape, Boxes: boxes, Lo: flat[0], Hi: flat[1]}
	if len(boxes) == 0 {
		p.Boxes = []layout.Box{layout.WholeBox(shape)}
	}
	n := 0
	for _, b := range p.Boxes {
		if err := b.Within(shape); err != nil {
			return p, err
		}
		n += b.Len()
	}
	if flat == [2]int{} {
		p.Hi = n
	}
	if p.Lo < 0 || p.Lo > p.Hi || p.Hi > n {
		return p, fmt.Errorf("elements %d to %d of boxes with %d", p.Lo, p.Hi, n)
	}
	return p, nil
}

// Of is what a placement leaves a rank, of which it has n elements.
func Of(p layout.Placement, n int) (Part, error) {
	lo, hi := p.Range()
	var err error
	if hi-lo != n {
		err = fmt.Errorf("its placement is of %d elements, the tensor has %d", hi-lo, n)
	}
	return Part{p.Global(), p.Boxes(), lo, hi}, err
}

// WholePart is the whole tensor as one part.
func WholePart(shape []int) Part {
	p, err := NewPart(shape, nil, [2]int{})
	if err != nil {
		panic(err) // shapes were checked before
	}
	return p
}

// Len returns the number of elements.
func (p Part) Len() int { return p.Hi - p.Lo }

// Whole reports whether the part is the whole tensor, in its order.
func (p Part) Whole() bool {
	return len(p.Boxes) == 1 && p.Lo == 0 && p.Hi == p.Boxes[0].Len() && p.Hi == Product(p.Shape)
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
	return p.Lo == q.Lo && p.Hi == q.Hi && slices.EqualFunc(p.Boxes, q.Boxes, layout.Box.Equal)
}

// boxRange is a range of the elements of one box, and the index of its first element in a part.
type boxRange struct {
	Box    layout.Box
	Lo, Hi int
	At     int
}

// ByBox divides a part by its boxes.
func (p Part) ByBox() (list []boxRange) {
	first := 0 // of the box
	for _, b := range p.Boxes {
		end := first + b.Len()
		if lo, hi := max(p.Lo, first), min(p.Hi, end); lo < hi {
			list = append(list, boxRange{b, lo - first, hi - first, lo - p.Lo})
		}
		first = end
	}
	return list
}

// Slice returns n elements from at on, counted as in p. They must be in one box of p.
func (p Part) Slice(at, n int) Part {
	for _, s := range p.ByBox() {
		if lo := s.Lo + at - s.At; s.At <= at && lo+n <= s.Hi {
			return Part{p.Shape, []layout.Box{s.Box}, lo, lo + n}
		}
	}
	return Part{Shape: p.Shape} // empty
}

// Find returns the index in p of the first element of q, if one box of p contains all of q.
func (p Part) Find(q Part) (at int, ok bool) {
	want := q.ByBox()
	if len(want) != 1 {
		return 0, false
	}
	for _, s := range p.ByBox() {
		if s.Lo <= want[0].Lo && want[0].Hi <= s.Hi && s.Box.Equal(want[0].Box) {
			return s.At + want[0].Lo - s.Lo, true
		}
	}
	return 0, false
}

// Runs yields the runs of consecutive elements, in the part's order: the first element in the whole tensor, and the
// number.
func (p Part) Runs() iter.Seq2[int, int] { return layout.Runs(p.Shape, p.Boxes, p.Lo, p.Hi) }

// maxBoxes is the largest number of boxes of a tensor, because tile compares each one with each other.
const maxBoxes = 4096

// Tile verifies that the parts have every element of the tensor exactly once: parts with the same boxes must divide
// their elements, and the boxes must divide the tensor.
func Tile(shape []int, parts []Part) error {
	type group struct {
		boxes []layout.Box
		flats [][2]int
	}
	groups := map[string]*group{}
	var all []layout.Box
	for _, p := range parts {
		if p.Len() == 0 {
			continue
		}
		key := fmt.Sprint(p.Boxes)
		g := groups[key]
		if g == nil {
			g = &group{boxes: p.Boxes}
			groups[key] = g
			all = append(all, slices.DeleteFunc(slices.Clone(p.Boxes), func(b layout.Box) bool { return b.Len() == 0 })...)
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
			n += b.Len()
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

func overlap(a, b layout.Box) bool {
	for i := range a.Lo {
		if a.Hi[i] <= b.Lo[i] || b.Hi[i] <= a.Lo[i] {
			return false
		}
	}
	return true
}
