package layout

import (
	"fmt"
	"slices"
)

// Cut says how ranks divide a tensor: along the dimension Dim, each part on its own. Parts are the widths along Dim; none means one part.
// A fused projection has one part each for queries, keys and values, so that every rank gets a share of all three. Unit, if not 0, is the
// number of elements along Dim that must stay together, such as those of a head. The ranks divide the units of a part. If there are fewer
// units than ranks, neighbouring ranks hold the same unit, as with grouped-query attention.
type Cut struct {
	Dim   int   `json:"dim"`
	Parts []int `json:"parts,omitempty"`
	Unit  int   `json:"unit,omitempty"`
}

// Equal reports whether two cuts are the same.
func (c Cut) Equal(d Cut) bool {
	return c.Dim == d.Dim && c.Unit == d.Unit && slices.Equal(c.Parts, d.Parts)
}

// Boxes returns what a rank of so many ranks has of a tensor: a box for each part; boxes that touch are joined. If the ranks do not divide
// a part, the first ones have one more. It returns an error if the cut does not fit the shape, the rank or the ranks.
func (c Cut) Boxes(shape []int, rank, ranks int) (boxes []Box, err error) {
	if c.Dim < 0 || c.Dim >= len(shape) || rank < 0 || rank >= ranks {
		return nil, fmt.Errorf("dimension %d of shape %v for rank %d of %d", c.Dim, shape, rank, ranks)
	}
	whole, at := WholeBox(shape), 0
	for _, width := range c.Widths(shape) {
		if width < 0 || width > shape[c.Dim]-at {
			return nil, fmt.Errorf("parts %v of dimension %d of shape %v", c.Parts, c.Dim, shape)
		}
		lo, hi, err := c.share(width, rank, ranks)
		if err != nil {
			return nil, err
		}
		if k := len(boxes) - 1; k >= 0 && boxes[k].Hi[c.Dim] == at+lo {
			boxes[k].Hi[c.Dim] = at + hi
		} else {
			boxes = append(boxes, whole.along(c.Dim, at+lo, at+hi))
		}
		at += width
	}
	if at != shape[c.Dim] {
		return nil, fmt.Errorf("parts %v of dimension %d of shape %v", c.Parts, c.Dim, shape)
	}
	return boxes, nil
}

// split divides a box that is whole along Dim into its parts.
func (c Cut) split(b Box) (list []Box) {
	at := 0
	for _, width := range c.Parts {
		list = append(list, b.along(c.Dim, at, at+width))
		at += width
	}
	return list
}

// Widths returns those of the parts of a tensor of this shape.
func (c Cut) Widths(shape []int) []int {
	if len(c.Parts) == 0 {
		return shape[c.Dim : c.Dim+1]
	}
	return c.Parts
}

// share returns the range of the elements of a part of this width that a rank has.
func (c Cut) share(width, rank, ranks int) (lo, hi int, err error) {
	unit := max(c.Unit, 1)
	if c.Unit < 0 || width%unit != 0 {
		return 0, 0, fmt.Errorf("%d elements do not divide into units of %d", width, c.Unit)
	}
	n := width / unit
	switch {
	case c.Unit == 0 || n == 0 || n >= ranks:
	case ranks%n == 0:
		rank, ranks = rank/(ranks/n), n
	default:
		return 0, 0, fmt.Errorf("%d units of %d do not divide over %d ranks", n, c.Unit, ranks)
	}
	lo, hi = Share(n, rank, ranks)
	return lo * unit, hi * unit, nil
}

// Transposed returns the cut of the transposed matrix.
func (c Cut) Transposed() *Cut { return &Cut{1 - c.Dim, c.Parts, c.Unit} }
