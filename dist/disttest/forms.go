package disttest

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// forms runs the V forms with every type, in place and not, and Gather and Scatter in place at every root.
func (s *suite) forms(t *testing.T) {
	for _, n := range s.sizes() {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			s.ok(t, n, func(r *dist.Rank) error {
				for d := tensor.DType(0); d < tensor.NumDTypes; d++ {
					for _, scale := range []int{1, 301} {
						if err := vInPlace(r, d, scale); err != nil {
							return fmt.Errorf("%v, scale %d: %w", d, scale, err)
						}
					}
				}
				for root := range n {
					for _, count := range []int{1, 7000} {
						if err := rootInPlace(r, count, root); err != nil {
							return fmt.Errorf("root %d, count %d: %w", root, count, err)
						}
					}
				}
				return nil
			})
		})
	}
}

// shares returns the numbers of rows of the ranks, with an empty and a long one; how many rows are before this rank's; and the sum.
func shares(g *dist.Group, scale int) (rows []int, before, total int) {
	for i := range g.Size() {
		rows = append(rows, (i+2)%3*scale)
		if i < g.Rank() {
			before += rows[i]
		}
		total += rows[i]
	}
	return rows, before, total
}

// vInPlace gathers and scatters in place, and exchanges, rows of two elements.
func vInPlace(r *dist.Rank, d tensor.DType, scale int) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	rows, before, total := shares(g, scale)
	var owner []int // owner of each element
	for i, k := range rows {
		for range 2 * k {
			owner = append(owner, i)
		}
	}
	flat := filled(r, d, 2*total, func(i int) float64 { return tag(me, i) })
	all := flat.View(total, 2)
	part := flat.Range(2*before, 2*(before+rows[me])).View(rows[me], 2)
	if err := want(g.AllGatherV(all, part, rows), "allgatherv in place", flat, func(i int) float64 { return tag(owner[i], i) }); err != nil {
		return err
	}
	set(flat, func(i int) float64 { return tag(me, i) })
	w := g.ReduceScatterV(part, all, rows, dist.Max)
	if err := want(w, "reducescatterv in place", part.View(2*rows[me]), func(i int) float64 { return highest(d, n, 2*before+i) }); err != nil {
		return err
	}
	recv := make([]int, n)
	for i := range recv {
		recv[i] = rows[me]
	}
	out := tensor.New(r.Device, d, n*2*rows[me])
	set(flat, func(i int) float64 { return tag(me, i) })
	return want(g.AllToAllV(out.View(n*rows[me], 2), all, recv, rows), "alltoallv", out, func(i int) float64 {
		return tag(i/(2*rows[me]), 2*before+i%(2*rows[me]))
	})
}

// highest is the maximum of element i over the ranks.
func highest(d tensor.DType, n, i int) float64 {
	top := 0.0
	for rank := range n {
		v := tag(rank, i)
		if d == tensor.Bool {
			v = float64(int(v) & 1)
		}
		top = max(top, v)
	}
	return top
}

// rootInPlace gathers to, and scatters from, a buffer of the root that already contains the root's own part.
func rootInPlace(r *dist.Rank, count, root int) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	x := filled(r, tensor.Float32, n*count, func(i int) float64 { return tag(me, i) })
	part, all := x.Range(me*count, (me+1)*count), x
	if me != root {
		all = tensor.Tensor{}
	}
	w := g.Gather(all, part, root)
	if err := w.Wait(); err != nil {
		return err
	}
	if me == root {
		if err := holds("gather in place", x, func(i int) float64 { return tag(i/count, i) }); err != nil {
			return err
		}
	}
	set(x, func(i int) float64 { return tag(me, i) })
	return want(g.Scatter(part, all, root), "scatter in place", part, func(i int) float64 { return tag(root, me*count+i) })
}

// vShare is the number of elements of rank i in the V forms whose bytes are counted.
func vShare(i int) int { return 100 * (i + 1) }

func vRows(n int) (total int) {
	for i := range n {
		total += vShare(i)
	}
	return total
}

func vCounts(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = vShare(i)
	}
	return rows
}

func vGather(r *dist.Rank) dist.Work {
	g := r.World
	n := g.Size()
	return g.AllGatherV(zeros(g, vRows(n)), zeros(g, vShare(g.Rank())), vCounts(n))
}

func vScatter(r *dist.Rank) dist.Work {
	g := r.World
	n := g.Size()
	return g.ReduceScatterV(zeros(g, vShare(g.Rank())), zeros(g, vRows(n)), vCounts(n), dist.Sum)
}

// vExchange sends vShare(k) elements to rank k, and so receives vShare(rank) from each.
func vExchange(r *dist.Rank) dist.Work {
	g := r.World
	n := g.Size()
	recv := make([]int, n)
	for i := range recv {
		recv[i] = vShare(g.Rank())
	}
	return g.AllToAllV(zeros(g, n*vShare(g.Rank())), zeros(g, vRows(n)), recv, vCounts(n))
}
