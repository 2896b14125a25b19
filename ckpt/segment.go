package ckpt

import (
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
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
		y.Name, y.Shape, y.First = s.Name, slices.Concat([]int{s.Total}, x.Shape[1:]), s.First
		y.Rule = segmentRule(x.of, first, s)
		cuts := x.part.Cuts(s, first, y.Shape)
		if len(cuts) == 0 {
			none := shard.WholePart(y.Shape)
			none.Hi = 0
			cuts = []shard.Cut{{Part: none}}
		}
		if s.Squeeze {
			y.Shape, y.Expert = y.Shape[1:], &storage.Expert{Index: first, Of: x.Shape[0]}
		}
		for _, c := range cuts {
			if s.Squeeze {
				c.Part = c.Squeezed()
			}
			y.part, y.at = c.Part, c.At
			y.take(x.data)
			list = append(list, y)
		}
		first += s.Rows
	}
	return list
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
