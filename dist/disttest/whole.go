package disttest

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// piece is the part of a parameter that a rank has.
type piece struct {
	Shard  tensor.Shard
	Values []float64
}

// Whole returns all elements of parameters, one parameter after another. Param.Shard of the ranks of g says where elements are. If
// several ranks have the same element, its bits must be the same. It is collective.
func Whole(g *dist.Group, params ...*tensor.Param) ([]float64, error) {
	mine := make([]piece, len(params))
	for i, p := range params {
		mine[i] = piece{p.Shard, tensor.Floats(p.Local)}
	}
	all, err := dist.AllGatherObject(g, mine)
	if err != nil {
		return nil, err
	}
	var out []float64
	for i, p := range params {
		x := mine[i].Values
		if p.Shard.Global != nil {
			if x, err = join(p, func(rank int) piece { return all[rank][i] }, len(all)); err != nil {
				return nil, err
			}
		}
		out = append(out, x...)
	}
	return out, nil
}

// join joins the parts of a parameter that the ranks have.
func join(p *tensor.Param, of func(rank int) piece, ranks int) ([]float64, error) {
	n := 1
	for _, d := range p.Shard.Global {
		n *= d
	}
	out, known := make([]float64, n), make([]bool, n)
	for rank := range ranks {
		h := of(rank)
		flat := h.Shard.Flat
		if flat == [2]int{} {
			flat[1] = len(h.Values)
		}
		for i, at := range places(h.Shard)[flat[0]:flat[1]] {
			if known[at] && out[at] != h.Values[i] {
				return nil, fmt.Errorf("%s: rank %d has %v as element %d, a rank before it has %v", p.Name(), rank, h.Values[i], at, out[at])
			}
			out[at], known[at] = h.Values[i], true
		}
	}
	if i := slices.Index(known, false); i >= 0 {
		return nil, fmt.Errorf("%s: no rank has element %d", p.Name(), i)
	}
	return out, nil
}

// places returns the global indices of the elements of a shard's boxes, in order.
func places(s tensor.Shard) (at []int) {
	boxes := s.Boxes
	if len(boxes) == 0 {
		boxes = []tensor.Box{{Lo: make([]int, len(s.Global)), Hi: s.Global}}
	}
	for _, b := range boxes {
		list := []int{0}
		for d, size := range s.Global {
			var next []int
			for _, i := range list {
				for k := b.Lo[d]; k < b.Hi[d]; k++ {
					next = append(next, i*size+k)
				}
			}
			list = next
		}
		at = append(at, list...)
	}
	return at
}
