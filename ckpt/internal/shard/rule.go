package shard

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Rule is ckpt.Rule, and explained there.
type Rule struct {
	Dim   int   `json:"dim"`
	Parts []int `json:"parts,omitempty"` // widths along Dim; none: one part
	Unit  int   `json:"unit,omitempty"`  // elements along Dim that stay together; 0: 1
}

// Rules is ckpt.Rules, and explained there.
type Rules map[string]Rule

// Find returns the rule of a tensor, or nil. An exact name wins over patterns. Of several matching patterns, the
// alphabetically last one wins.
func (r Rules) Find(name string) *Rule {
	if rule, ok := r[name]; ok {
		return &rule
	}
	for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(r))) {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			rule := r[pattern]
			return &rule
		}
	}
	return nil
}

// Transposed returns the rule for the transposed matrix.
func (r Rule) Transposed() *Rule { return &Rule{1 - r.Dim, r.Parts, r.Unit} }

// Boxes returns the boxes of a tensor that a rank of size ranks holds: one for each part; boxes that touch are joined.
// If a part cannot be divided evenly, its shares differ by one. It returns an error if the rule does not fit the shape,
// the rank or the size.
func (r Rule) Boxes(shape []int, rank, size int) ([]tensor.Box, error) {
	if r.Dim < 0 || r.Dim >= len(shape) || rank < 0 || rank >= size {
		return nil, fmt.Errorf("dimension %d of shape %v for rank %d of %d", r.Dim, shape, rank, size)
	}
	parts := r.Parts
	if len(parts) == 0 {
		parts = shape[r.Dim : r.Dim+1]
	}
	var boxes []tensor.Box
	at := 0
	for _, width := range parts {
		if width < 0 || width > shape[r.Dim]-at {
			return nil, fmt.Errorf("parts %v of dimension %d of shape %v", parts, r.Dim, shape)
		}
		b := tensor.Box{Lo: make([]int, len(shape)), Hi: slices.Clone(shape)}
		lo, hi, err := r.share(width, rank, size)
		if err != nil {
			return nil, err
		}
		b.Lo[r.Dim], b.Hi[r.Dim] = at+lo, at+hi
		if k := len(boxes) - 1; k >= 0 && boxes[k].Hi[r.Dim] == b.Lo[r.Dim] {
			boxes[k].Hi[r.Dim] = b.Hi[r.Dim]
		} else {
			boxes = append(boxes, b)
		}
		at += width
	}
	if at != shape[r.Dim] {
		return nil, fmt.Errorf("parts %v of dimension %d of shape %v", parts, r.Dim, shape)
	}
	return boxes, nil
}

// share returns the range of the elements of a part of this width that a rank holds.
func (r Rule) share(width, rank, size int) (lo, hi int, err error) {
	if r.Unit == 0 {
		lo, hi = layout.Share(width, rank, size)
		return lo, hi, nil
	}
	if r.Unit < 0 || width%r.Unit != 0 {
		return 0, 0, fmt.Errorf("%d elements do not divide into units of %d", width, r.Unit)
	}
	n := width / r.Unit
	switch {
	case n%size == 0:
		return n / size * rank * r.Unit, n / size * (rank + 1) * r.Unit, nil
	case n > 0 && size%n == 0:
		k := rank / (size / n)
		return k * r.Unit, (k + 1) * r.Unit, nil
	}
	return 0, 0, fmt.Errorf("%d units of %d do not divide over %d ranks: the number of ranks must divide %d, or be a multiple of it",
		n, r.Unit, size, n)
}
