package disttest

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// tag gives each element of each rank a number that fits every type. For bool the lowest bit counts.
func tag(rank, i int) float64 { return float64((rank*31 + i) % 97) }

// movement runs the operations that only move data, with every type and root.
func (s *suite) movement(t *testing.T) {
	for _, n := range s.sizes() {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			s.ok(t, n, func(r *dist.Rank) error {
				for d := tensor.DType(0); d < tensor.NumDTypes; d++ {
					for _, count := range []int{0, 1, 50, big(10_001)} {
						for root := range n {
							if err := moveRooted(r, d, count, root); err != nil {
								return fmt.Errorf("%v, %d elements, root %d: %w", d, count, root, err)
							}
						}
						if err := moveAll(r, d, count); err != nil {
							return fmt.Errorf("%v, %d elements: %w", d, count, err)
						}
					}
				}
				return r.World.MonitoredBarrier().Wait()
			})
		})
	}
}

func moveRooted(r *dist.Rank, d tensor.DType, count, root int) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	x := filled(r, d, count, func(i int) float64 { return tag(me, i) })
	if err := g.Broadcast(x, root).Wait(); err != nil {
		return err
	}
	if err := holds("broadcast", x, func(i int) float64 { return tag(root, i) }); err != nil {
		return err
	}
	var all, src tensor.Tensor
	if me == root {
		all = tensor.New(r.Device, d, n*count)
		src = filled(r, d, n*count, func(i int) float64 { return tag(i, 5) })
	}
	set(x, func(i int) float64 { return tag(me, i) })
	if err := g.Gather(all, x, root).Wait(); err != nil {
		return err
	}
	if me == root {
		if err := holds("gather", all, func(i int) float64 { return tag(i/count, i%count) }); err != nil {
			return err
		}
	}
	if err := g.Scatter(x, src, root).Wait(); err != nil {
		return err
	}
	return holds("scatter", x, func(i int) float64 { return tag(me*count+i, 5) })
}

func moveAll(r *dist.Rank, d tensor.DType, count int) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	x, all := filled(r, d, count, func(i int) float64 { return tag(me, i) }), tensor.New(r.Device, d, n*count)
	if err := g.AllGather(all, x).Wait(); err != nil {
		return err
	}
	if err := holds("allgather", all, func(i int) float64 { return tag(i/count, i%count) }); err != nil {
		return err
	}
	src := filled(r, d, n*count, func(i int) float64 { return tag(me*7+i/count, i%count) })
	if err := g.AllToAll(all, src).Wait(); err != nil {
		return err
	}
	return holds("alltoall", all, func(i int) float64 { return tag(i/count*7+me, i%count) })
}

// vForms runs the V forms on rows of 3 elements. Some ranks have no rows.
func (s *suite) vForms(t *testing.T) {
	for _, n := range s.sizes() {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			s.ok(t, n, func(r *dist.Rank) error {
				for _, scale := range []int{0, 1, 400} {
					if err := gatherV(r, scale); err != nil {
						return err
					}
					if err := exchangeV(r, scale); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func gatherV(r *dist.Rank, scale int) error {
	g := r.World
	counts, total := make([]int, g.Size()), 0
	var want []float64
	for i := range counts {
		counts[i] = scale * (i % 3)
		total += counts[i]
		want = append(want, list(3*counts[i], func(k int) float64 { return tag(i, k) })...)
	}
	src := filled(r, tensor.Float32, 3*counts[g.Rank()], func(k int) float64 { return tag(g.Rank(), k) }).View(counts[g.Rank()], 3)
	dst := tensor.New(r.Device, tensor.Float32, total, 3)
	if err := g.AllGatherV(dst, src, counts).Wait(); err != nil {
		return err
	}
	return holds("allgatherv", dst, func(i int) float64 { return want[i] })
}

// exchangeV sends scale*((from+2*to)%4) rows from each rank to each other.
func exchangeV(r *dist.Rank, scale int) error {
	g := r.World
	n, me := g.Size(), g.Rank()
	rows := func(from, to int) int { return scale * ((from + 2*to) % 4) }
	send, recv := make([]int, n), make([]int, n)
	var in, want []float64
	for i := range n {
		send[i], recv[i] = rows(me, i), rows(i, me)
		in = append(in, list(3*send[i], func(k int) float64 { return tag(me*n+i, k) })...)
		want = append(want, list(3*recv[i], func(k int) float64 { return tag(i*n+me, k) })...)
	}
	src := filled(r, tensor.Int32, len(in), func(k int) float64 { return in[k] }).View(len(in)/3, 3)
	dst := tensor.New(r.Device, tensor.Int32, len(want)/3, 3)
	if err := g.AllToAllV(dst, src, recv, send).Wait(); err != nil {
		return err
	}
	return holds("alltoallv", dst, func(i int) float64 { return want[i] })
}

// inPlace runs the in-place forms: the input is this rank's block of the output, or the output is this rank's block of the input.
func (s *suite) inPlace(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		g := r.World
		me := g.Rank()
		for _, count := range []int{10, 9000} {
			x := filled(r, tensor.Float32, 3*count, func(i int) float64 { return tag(me, i) })
			if err := g.AllGather(x, x.Range(me*count, (me+1)*count)).Wait(); err != nil {
				return err
			}
			if err := holds("allgather in place", x, func(i int) float64 { return tag(i/count, i) }); err != nil {
				return err
			}
			set(x, func(i int) float64 { return tag(me, i) })
			part := x.Range(me*count, (me+1)*count)
			if err := g.ReduceScatter(part, x, dist.Sum).Wait(); err != nil {
				return err
			}
			if err := holds("reducescatter in place", part, func(i int) float64 {
				k := me*count + i
				return tag(0, k) + tag(1, k) + tag(2, k)
			}); err != nil {
				return err
			}
			if err := rootedInPlace(r, count); err != nil {
				return err
			}
		}
		return nil
	})
}

func rootedInPlace(r *dist.Rank, count int) error {
	g := r.World
	me := g.Rank()
	x := filled(r, tensor.Float32, 3*count, func(i int) float64 { return tag(me, i) })
	part := x.Range(me*count, (me+1)*count)
	all := x
	if me != 1 {
		all = tensor.Tensor{}
	}
	if err := g.Gather(all, part, 1).Wait(); err != nil {
		return err
	}
	if me == 1 {
		if err := holds("gather in place", x, func(i int) float64 { return tag(i/count, i) }); err != nil {
			return err
		}
	}
	set(x, func(i int) float64 { return tag(me, i) })
	if err := g.Scatter(part, all, 1).Wait(); err != nil {
		return err
	}
	return holds("scatter in place", part, func(i int) float64 { return tag(1, me*count+i) })
}
