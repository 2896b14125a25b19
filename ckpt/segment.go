package ckpt

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// A parameter may be stored as segments (tensor.Param.Stored): rows of one tensor, or of several tensors. Such a
// parameter is divided where a box or a segment ends. Each resulting item is a run of consecutive elements in memory,
// and a part of one stored tensor. So a rank may have several items of one stored tensor, from one parameter or from
// several.

// divide divides a parameter's item into items of its segments. Each segment has at least one item, which may be empty.
func (x item) divide(as []tensor.Stored) (list []item) {
	first := 0 // first row of the segment in the parameter
	for _, s := range as {
		y := x
		y.name, y.shape = s.Name, slices.Concat([]int{s.Total}, x.shape[1:])
		cuts := x.part.cuts(s, first, y.shape)
		if len(cuts) == 0 {
			none := wholePart(y.shape)
			none.hi = 0
			cuts = []cut{{part: none}}
		}
		if s.Squeeze {
			y.shape, y.expert = y.shape[1:], &expert{first, x.shape[0]}
		}
		for _, c := range cuts {
			if s.Squeeze {
				c.part = c.squeezed()
			}
			y.part, y.at = c.part, c.at
			y.take(x.data)
			list = append(list, y)
		}
		first += s.Rows
	}
	return list
}

// cut is a part of a stored tensor, and where its elements begin in the memory of the parameter's item.
type cut struct {
	part
	at int
}

// cuts returns which elements of a segment a part of a parameter contains, as parts of the stored tensor. first is the
// segment's first row in the parameter, and shape is the stored tensor's shape.
func (p part) cuts(s tensor.Stored, first int, shape []int) (list []cut) {
	for _, b := range p.segments() {
		lo, hi := max(b.box.Lo[0], first), min(b.box.Hi[0], first+s.Rows)
		if lo >= hi {
			continue
		}
		row := volume(b.box) / (b.box.Hi[0] - b.box.Lo[0])
		begin := (lo - b.box.Lo[0]) * row // first element of these rows, in the box
		from, to := max(b.lo, begin), min(b.hi, (hi-b.box.Lo[0])*row)
		if from >= to {
			continue
		}
		box := tensor.Box{Lo: slices.Clone(b.box.Lo), Hi: slices.Clone(b.box.Hi)}
		box.Lo[0], box.Hi[0] = lo-first+s.First, hi-first+s.First
		list = append(list, cut{part{shape, []tensor.Box{box}, from - begin, to - begin}, b.at + from - b.lo})
	}
	return list
}

// squeezed removes dimension 0, which has size 1.
func (p part) squeezed() part {
	q := part{p.shape[1:], make([]tensor.Box, len(p.boxes)), p.lo, p.hi}
	for i, b := range p.boxes {
		q.boxes[i] = tensor.Box{Lo: b.Lo[1:], Hi: b.Hi[1:]}
	}
	return q
}

// expert is the position of a stored tensor in a stack of experts: one parameter whose rows are stored as tensors of
// their own. Expert parallelism divides the stack over the ranks in this order.
type expert struct {
	Index int `json:"index"`
	Of    int `json:"of"`
}

// storedNames returns the names under which a parameter is stored.
func storedNames(p *tensor.Param) (names []string) {
	for _, s := range p.Stored() {
		names = append(names, s.Name)
	}
	if names == nil {
		return []string{p.Name()}
	}
	return names
}
