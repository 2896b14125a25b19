package main

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// unequal are the V forms, whose parts have different lengths: here the part of rank r has length r+1 and begins at before(r).
func unequal() []demo {
	before := func(r int) int { return r * (r + 1) / 2 }
	part := func(r, _ int) int { return r + 1 }
	whole := func(_, n int) int { return before(n) }
	own := func(r, _, i int) int { return 10*r + i }
	sum := func(r, n, i int) int { return 5*n*(n-1) + n*(before(r)+i) }
	gathered := func(_, _, i int) int {
		r := 0
		for before(r+1) <= i {
			r++
		}
		return own(r, 0, i-before(r))
	}
	fromAll := func(r, n int) int { return n * part(r, n) }
	column := func(r, n, i int) int { return own(i/part(r, n), n, before(r)+i%part(r, n)) }
	growing := func(n int) (counts []int) {
		for r := range n {
			counts = append(counts, part(r, n))
		}
		return counts
	}
	return []demo{
		{"AllGatherV", "AllGather with r+1 values of rank r", values{part, own}, values{whole, gathered},
			func(g *dist.Group, dst, src tensor.Tensor) dist.Work {
				return g.AllGatherV(dst, src, growing(g.Size()))
			}},
		{"ReduceScatterV", "ReduceScatter with r+1 values for rank r", values{whole, own}, values{part, sum},
			func(g *dist.Group, dst, src tensor.Tensor) dist.Work {
				return g.ReduceScatterV(dst, src, growing(g.Size()), dist.Sum)
			}},
		{"AllToAllV", "AllToAll with r+1 values for rank r", values{whole, own}, values{fromAll, column},
			func(g *dist.Group, dst, src tensor.Tensor) dist.Work {
				same := make([]int, g.Size())
				for i := range same {
					same[i] = g.Rank() + 1
				}
				return g.AllToAllV(dst, src, same, growing(g.Size()))
			}},
	}
}
