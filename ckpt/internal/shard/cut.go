package shard

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// Cut is a part of a stored tensor, and where its elements begin in the memory of the parameter's item.
type Cut struct {
	Part
	At int
}

// Cuts returns which elements of a segment a part of a parameter contains, as parts of the stored tensor. first is the
// segment's first row in the parameter, and shape is the stored tensor's shape.
func (p Part) Cuts(s tensor.Stored, first int, shape []int) (list []Cut) {
	for _, b := range p.ByBox() {
		lo, hi := max(b.Box.Lo[0], first), min(b.Box.Hi[0], first+s.Rows)
		if lo >= hi {
			continue
		}
		row := b.Box.Len() / (b.Box.Hi[0] - b.Box.Lo[0])
		begin := (lo - b.Box.Lo[0]) * row // first element of these rows, in the box
		from, to := max(b.Lo, begin), min(b.Hi, (hi-b.Box.Lo[0])*row)
		if from >= to {
			continue
		}
		box := tensor.Box{Lo: slices.Clone(b.Box.Lo), Hi: slices.Clone(b.Box.Hi)}
		box.Lo[0], box.Hi[0] = lo-first+s.First, hi-first+s.First
		list = append(list, Cut{Part{shape, []tensor.Box{box}, from - begin, to - begin}, b.At + from - b.Lo})
	}
	return list
}

// Squeezed removes dimension 0, which has size 1.
func (p Part) Squeezed() Part {
	q := Part{p.Shape[1:], make([]tensor.Box, len(p.Boxes)), p.Lo, p.Hi}
	for i, b := range p.Boxes {
		q.Boxes[i] = tensor.Box{Lo: b.Lo[1:], Hi: b.Hi[1:]}
	}
	return q
}
