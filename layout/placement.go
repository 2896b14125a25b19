package layout

import (
	"fmt"
	"iter"
	"slices"
)

// Placement says how a parameter is divided over the ranks of a job, and what this rank has of it: divisions leave it boxes of the model's
// tensor (tensor and expert parallelism), and of the elements of these, in order, it has a range (sharded data parallelism). Along axes
// that do not divide it, ranks have the same. A Placement does not change: methods return another one.
type Placement struct {
	global, dims []int
	by           []Division
	divided      Axes  // by these
	boxes        []Box // one or more
	lo, hi       int   // elements of the boxes
	sharded      bool  // Shard was called
	summed       Axes
}

// Whole places all of a tensor of this shape on every rank.
func Whole(dims ...int) Placement {
	b := WholeBox(dims)
	return Placement{global: b.Hi, dims: b.Hi, boxes: []Box{b}, hi: b.Len()}
}

// Place leaves the ranks of an axis a part each of what this rank has. Parts are for dimension 0, so that this rank's boxes, one after
// another, are a tensor. If an axis before divides the dimension already, this one divides each part that is left.
func (p Placement) Place(a Axis, d Division) (Placement, error) {
	boxes, same := p.boxes, func(e Division) bool { return e.Dim == d.Dim }
	_, err := d.Boxes(p.global, a.Rank, a.Ranks)
	switch {
	case err != nil || a.Ranks == 1:
		return p, err
	case a.Axes == 0:
		return p, fmt.Errorf("a group of %d ranks that is no axis of the job: make the first Mesh of the job with an axis for it", a.Ranks)
	case p.hi-p.lo != p.elements():
		return p, fmt.Errorf("this rank has elements %d to %d of it already", p.lo, p.hi)
	case len(d.Parts) > 1 && (d.Dim > 0 || slices.ContainsFunc(p.by, same)):
		return p, fmt.Errorf("parts %v of dimension %d: only dimension 0 can have parts, and before it is divided", d.Parts, d.Dim)
	case len(d.Parts) > 1:
		boxes = d.split(boxes[0])
	}
	q := p
	q.by, q.divided = append(slices.Clone(p.by), d), p.divided|a.Axes
	q.boxes, q.dims = nil, slices.Clone(p.dims)
	q.dims[d.Dim] = 0
	for i, b := range boxes {
		width := b.Hi[d.Dim] - b.Lo[d.Dim]
		if d.Unit > 0 && width < d.Unit*a.Ranks {
			return p, fmt.Errorf("%d ranks of one axis would have the same of %d elements in units of %d: a second axis is for those with the same",
				a.Ranks, width, d.Unit)
		}
		lo, hi, err := d.share(width, a.Rank, a.Ranks)
		if err != nil {
			return p, err
		}
		q.boxes = append(q.boxes, b.along(d.Dim, lo, hi))
		if i == 0 || d.Dim == 0 {
			q.dims[d.Dim] += hi - lo
		}
	}
	q.hi = q.elements()
	return q, nil
}

// Shard leaves this rank elements lo to hi-1 of its boxes.
func (p Placement) Shard(lo, hi int) Placement {
	p.lo, p.hi, p.sharded = lo, hi, true
	return p
}

// Sharded reports whether Shard was called, also with all elements: the values that are used are a copy of those that are updated.
func (p Placement) Sharded() bool { return p.sharded }

// SumOver says that gradients are summed over axes.
func (p Placement) SumOver(axes Axes) Placement {
	p.summed |= axes
	return p
}

func (p Placement) elements() (n int) {
	for _, b := range p.boxes {
		n += b.Len()
	}
	return n
}

// Global returns the shape of the model's tensor.
func (p Placement) Global() []int { return p.global }

// Dims returns the shape of this rank's boxes, one after another.
func (p Placement) Dims() []int { return p.dims }

// Divisions returns how axes divide it; none: it is whole on every rank, but for a Shard.
func (p Placement) Divisions() []Division { return p.by }

// Boxes returns those that divisions leave this rank, at least one.
func (p Placement) Boxes() []Box { return p.boxes }

// Range returns which elements of the boxes this rank has: from lo to hi-1.
func (p Placement) Range() (lo, hi int) { return p.lo, p.hi }

// Len returns how many elements this rank has.
func (p Placement) Len() int { return p.hi - p.lo }

// Divided returns the axes on whose ranks divisions leave other parts.
func (p Placement) Divided() Axes { return p.divided }

// Summed returns the axes over which gradients are summed.
func (p Placement) Summed() Axes { return p.summed }

// Runs yields the places of elements lo to hi-1 of the boxes in the model's tensor. See the function Runs.
func (p Placement) Runs(lo, hi int) iter.Seq2[int, int] { return Runs(p.global, p.boxes, lo, hi) }

// Equal reports whether two ranks, or two times, have the same of a tensor that is divided in the same way.
func (p Placement) Equal(q Placement) bool {
	return p.lo == q.lo && p.hi == q.hi && slices.Equal(p.global, q.global) &&
		slices.EqualFunc(p.boxes, q.boxes, Box.Equal) && slices.EqualFunc(p.by, q.by, Division.Equal)
}

// String says what this rank has: the same on ranks with the same elements, and only there.
func (p Placement) String() string {
	return fmt.Sprintf("%v of %v, elements %d to %d", p.boxes, p.global, p.lo, p.hi)
}
