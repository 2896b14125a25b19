package layout

import (
	"fmt"
	"slices"
)

// Division says how ranks divide a tensor: along the dimension Dim, each part on its own. Parts are the widths along Dim; none means one
// part. A fused projection has one part each for queries, keys and values, so that every rank gets a share of all three. Unit, if not 0, is
// the number of elements along Dim that must stay together, such as those of a head. The ranks divide the units of a part. If there are
// fewer units than ranks, Boxes gives neighbouring ranks the same unit. Placement.Place refuses that: there, a second axis is for the ranks
// with the same unit, as with grouped-query attention.
type Division struct {
	Dim   int   `json:"dim"`
	Parts []int `json:"parts,omitempty"`
	Unit  int   `json:"unit,omitempty"`
}

// Equal reports whether two divisions are the same.
func (d Division) Equal(e Division) bool {
	return d.Dim == e.Dim && d.Unit == e.Unit && slices.Equal(d.Parts, e.Parts)
}

// Boxes returns what a rank of so many ranks has of a tensor: a box for each part; boxes that touch are joined. If the ranks do not divide
// a part, the first ones have one more. It returns an error if the division does not fit the shape, the rank or the ranks.
func (d Division) Boxes(shape []int, rank, ranks int) (boxes []Box, err error) {
	if d.Dim < 0 || d.Dim >= len(shape) || rank < 0 || rank >= ranks {
		return nil, fmt.Errorf("dimension %d of shape %v for rank %d of %d", d.Dim, shape, rank, ranks)
	}
	whole, at := WholeBox(shape), 0
	for _, width := range d.Widths(shape) {
		if width < 0 || width > shape[d.Dim]-at {
			return nil, fmt.Errorf("parts %v of dimension %d of shape %v", d.Parts, d.Dim, shape)
		}
		lo, hi, err := d.share(width, rank, ranks)
		if err != nil {
			return nil, err
		}
		if k := len(boxes) - 1; k >= 0 && boxes[k].Hi[d.Dim] == at+lo {
			boxes[k].Hi[d.Dim] = at + hi
		} else {
			boxes = append(boxes, whole.along(d.Dim, at+lo, at+hi))
		}
		at += width
	}
	if at != shape[d.Dim] {
		return nil, fmt.Errorf("parts %v of dimension %d of shape %v", d.Parts, d.Dim, shape)
	}
	return boxes, nil
}

// split divides a box that is whole along Dim into its parts.
func (d Division) split(b Box) (list []Box) {
	at := 0
	for _, width := range d.Parts {
		list = append(list, b.along(d.Dim, at, at+width))
		at += width
	}
	return list
}

// Widths returns those of the parts of a tensor of this shape.
func (d Division) Widths(shape []int) []int {
	if len(d.Parts) == 0 {
		return shape[d.Dim : d.Dim+1]
	}
	return d.Parts
}

// share returns the range of the elements of a part of this width that a rank has.
func (d Division) share(width, rank, ranks int) (lo, hi int, err error) {
	unit := max(d.Unit, 1)
	if d.Unit < 0 || width%unit != 0 {
		return 0, 0, fmt.Errorf("%d elements do not divide into units of %d", width, d.Unit)
	}
	n := width / unit
	switch {
	case d.Unit == 0 || n == 0 || n >= ranks:
	case ranks%n == 0:
		rank, ranks = rank/(ranks/n), n
	default:
		return 0, 0, fmt.Errorf("%d units of %d do not divide over %d ranks", n, d.Unit, ranks)
	}
	lo, hi = Share(n, rank, ranks)
	return lo * unit, hi * unit, nil
}

// Transposed returns the division of the transposed matrix.
func (d Division) Transposed() *Division { return &Division{1 - d.Dim, d.Parts, d.Unit} }
