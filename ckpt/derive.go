package ckpt

import (
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// shares returns into how many shares the ranks have cut a tensor, if each rank holds at most one part. It returns 0 if
// the ranks have not cut the tensor, or if the number is unknown.
func (o *owned) shares() int {
	var different [][]tensor.Box
	for i, x := range o.parts {
		if x.empty() {
			continue
		}
		if i > 0 && o.parts[i-1].rank == x.rank || x.Boxes == nil {
			return 0
		}
		if !slices.ContainsFunc(different, func(b []tensor.Box) bool { return slices.EqualFunc(b, x.Boxes, shard.SameBox) }) {
			different = append(different, x.Boxes)
		}
	}
	return len(different)
}

// rule finds the Rule by which the ranks have cut a tensor, for its shape in memory: along one dimension, into parts of
// which every rank has a share. It returns nil if the ranks have not cut the tensor, or have cut it in another way.
// most is the largest number of shares of any tensor. It is tried first: if files join several parameters into one
// tensor, the boxes alone do not show which of them are shares and which are parts.
func (o *owned) rule(list []*boxHeld, whole shard.Part, most int) *Rule {
	if len(list) < 2 {
		return nil
	}
	boxes := make([]tensor.Box, len(list))
	for i, b := range list {
		boxes[i] = b.box
	}
	slices.SortFunc(boxes, func(a, b tensor.Box) int { return slices.Compare(a.Lo, b.Lo) })
	dim := 0
	for dim < len(whole.Shape)-1 && boxes[0].Hi[dim] == whole.Shape[dim] {
		dim++
	}
	for _, size := range []int{most, o.shares()} {
		if r := ruleOf(whole.Shape, boxes, dim, size); r != nil {
			r.Unit = o.Unit
			return r
		}
	}
	return nil
}

// ruleOf returns the Rule that cuts a tensor of this shape into these boxes with size shares, or nil if there is none.
func ruleOf(shape []int, boxes []tensor.Box, dim, size int) *Rule {
	if size < 2 || len(boxes)%size != 0 {
		return nil
	}
	r, at := &Rule{Dim: dim}, 0
	for i := 0; i < len(boxes); i += size {
		width := boxes[i+size-1].Hi[dim] - at
		for k, b := range boxes[i : i+size] {
			want := tensor.Box{Lo: make([]int, len(shape)), Hi: slices.Clone(shape)}
			lo, hi := layout.Share(width, k, size)
			want.Lo[dim], want.Hi[dim] = at+lo, at+hi
			if !shard.SameBox(want, b) {
				return nil
			}
		}
		r.Parts = append(r.Parts, width)
		at += width
	}
	if len(r.Parts) == 1 {
		r.Parts = nil
	}
	return r
}
