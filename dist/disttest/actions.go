package disttest

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// action is an operation of a program: run issues it and returns how to check its result after Wait.
type action struct {
	name string
	run  func(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error)
	// two is set for operations that use the same memory. They run on g and on twin, which is another group of the same ranks, or g.
	two func(s *step, r *dist.Rank, g, twin *dist.Group) (dist.Work, func() error)
}

func (a *action) issue(s *step, r *dist.Rank, g, twin *dist.Group) (dist.Work, func() error) {
	if a.two != nil {
		return a.two(s, r, g, twin)
	}
	return a.run(s, r, g)
}

var actions = []action{
	{name: "chain", two: actChain}, {name: "relay", two: actRelay},
	{name: "allreduce", run: actAllReduce}, {name: "reduce", run: actReduce}, {name: "reducescatter", run: actReduceScatter}, {name: "broadcast", run: actBroadcast},
	{name: "gather", run: actGather}, {name: "scatter", run: actScatter}, {name: "allgather", run: actAllGather}, {name: "alltoall", run: actAllToAll},
	{name: "allgatherv", run: actAllGatherV}, {name: "alltoallv", run: actAllToAllV}, {name: "ring", run: actRing}, {name: "barrier", run: actBarrier},
	{name: "monitoredbarrier", run: actMonitored}, {name: "reducescatterv", run: actReduceScatterV}, {name: "recvany", run: actRecvAny}, {name: "batch", run: actBatch},
}

// different is another operation than that of s.
func different(s *step) action {
	if actions[s.what].name == "barrier" {
		return action{name: "broadcast instead", run: actBroadcast}
	}
	return action{name: "barrier instead", run: actBarrier}
}

func fine() error { return nil }

func actBarrier(_ *step, _ *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	return g.Barrier(), fine
}

func actMonitored(_ *step, _ *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	return g.MonitoredBarrier(), fine
}

// is returns a check that x has the given elements.
func is(x tensor.Tensor, at func(i int) float64) func() error {
	return func() error { return holds("result", x, at) }
}

func (s *step) in(g *dist.Group) func(i int) float64 {
	return func(i int) float64 { return value(reds[s.red].name, s.dtype, g.Size(), g.Rank(), i) }
}

func (s *step) out(g *dist.Group) func(i int) float64 {
	return func(i int) float64 { return reduced(s.red, s.dtype, g.Size(), i) }
}

func actAllReduce(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	x := filled(r, s.dtype, s.count, s.in(g))
	return g.AllReduce(x, reds[s.red].op(g.Rank())), is(x, s.out(g))
}

func actReduce(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	x, root := filled(r, s.dtype, s.count, s.in(g)), s.root%g.Size()
	w := g.Reduce(x, reds[s.red].op(g.Rank()), root)
	if g.Rank() == root {
		return w, is(x, s.out(g))
	}
	return w, is(x, s.in(g))
}

func actReduceScatter(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	src, dst := filled(r, s.dtype, s.count*g.Size(), s.in(g)), tensor.New(r.Device, s.dtype, s.count)
	w := g.ReduceScatter(dst, src, reds[s.red].op(g.Rank()))
	return w, is(dst, func(i int) float64 { return s.out(g)(g.Rank()*s.count + i) })
}

func actReduceScatterV(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	counts := make([]int, g.Size())
	for i := range counts {
		counts[i] = s.rows(i, 0)
	}
	first := totalOf(counts[:g.Rank()])
	src, dst := filled(r, s.dtype, totalOf(counts), s.in(g)), tensor.New(r.Device, s.dtype, counts[g.Rank()])
	w := g.ReduceScatterV(dst, src, counts, reds[s.red].op(g.Rank()))
	return w, is(dst, func(i int) float64 { return s.out(g)(first + i) })
}

func actBroadcast(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	root := s.root % g.Size()
	x := filled(r, s.dtype, s.count, func(i int) float64 { return tag(g.Rank(), i) })
	return g.Broadcast(x, root), is(x, func(i int) float64 { return tag(root, i) })
}

func actGather(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	root := s.root % g.Size()
	x := filled(r, s.dtype, s.count, func(i int) float64 { return tag(g.Rank(), i) })
	if g.Rank() != root {
		return g.Gather(tensor.Tensor{}, x, root), fine
	}
	all := tensor.New(r.Device, s.dtype, s.count*g.Size())
	return g.Gather(all, x, root), is(all, func(i int) float64 { return tag(i/s.count, i%s.count) })
}

func actScatter(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	root, src := s.root%g.Size(), tensor.Tensor{}
	if g.Rank() == root {
		src = filled(r, s.dtype, s.count*g.Size(), func(i int) float64 { return tag(i, 5) })
	}
	x := tensor.New(r.Device, s.dtype, s.count)
	return g.Scatter(x, src, root), is(x, func(i int) float64 { return tag(g.Rank()*s.count+i, 5) })
}

func actAllGather(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	x := filled(r, s.dtype, s.count, func(i int) float64 { return tag(g.Rank(), i) })
	all := tensor.New(r.Device, s.dtype, s.count*g.Size())
	return g.AllGather(all, x), is(all, func(i int) float64 { return tag(i/s.count, i%s.count) })
}

func actAllToAll(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	src := filled(r, s.dtype, s.count*g.Size(), func(i int) float64 { return tag(g.Rank()*7+i/s.count, i%s.count) })
	dst := tensor.New(r.Device, s.dtype, s.count*g.Size())
	return g.AllToAll(dst, src), is(dst, func(i int) float64 { return tag(i/s.count*7+g.Rank(), i%s.count) })
}

// rows is how many rows rank `from` has for rank `to`.
func (s *step) rows(from, to int) int { return s.count * (1 + (from+2*to)%3) / 3 }

// place returns in which part element i of a concatenation is, and where in the part.
func place(i int, parts []int) (part, at int) {
	for part < len(parts)-1 && i >= parts[part] {
		i -= parts[part]
		part++
	}
	return part, i
}

func totalOf(parts []int) (n int) {
	for _, p := range parts {
		n += p
	}
	return n
}

func actAllGatherV(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	counts := make([]int, g.Size())
	for i := range counts {
		counts[i] = s.rows(i, 0)
	}
	x := filled(r, s.dtype, counts[g.Rank()], func(i int) float64 { return tag(g.Rank(), i) })
	all := tensor.New(r.Device, s.dtype, totalOf(counts))
	return g.AllGatherV(all, x, counts), is(all, func(i int) float64 { return tag(place(i, counts)) })
}

func actAllToAllV(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	me, send, recv := g.Rank(), make([]int, g.Size()), make([]int, g.Size())
	for i := range send {
		send[i], recv[i] = s.rows(me, i), s.rows(i, me)
	}
	src := filled(r, s.dtype, totalOf(send), func(i int) float64 {
		to, at := place(i, send)
		return tag(me*7+to, at)
	})
	dst := tensor.New(r.Device, s.dtype, totalOf(recv))
	return g.AllToAllV(dst, src, recv, send), is(dst, func(i int) float64 {
		from, at := place(i, recv)
		return tag(from*7+me, at)
	})
}
