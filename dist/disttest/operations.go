package disttest

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Operation is one kind of operation in the fault matrix.
type Operation struct {
	Name string
	// Run does it on every rank of g, with about count elements, and checks the result. All other ranks wait for rank peer, in this call
	// or in the next one.
	Run func(g *dist.Group, peer, count int) error
}

// Operations returns all kinds.
func Operations() []Operation {
	return []Operation{
		{"broadcast", opBroadcast}, {"reduce", opReduce}, {"allreduce", opAllReduce}, {"gather", opGather},
		{"allgather", opAllGather}, {"scatter", opScatter}, {"reducescatter", opReduceScatter}, {"alltoall", opAllToAll},
		{"allgatherv", opAllGatherV}, {"reducescatterv", opReduceScatterV}, {"alltoallv", opAllToAllV},
		{"barrier", func(g *dist.Group, _, _ int) error { return g.Barrier().Wait() }},
		{"monitoredbarrier", func(g *dist.Group, _, _ int) error { return g.MonitoredBarrier().Wait() }},
		{"send", opSend}, {"recv", opRecv}, {"batch", opBatch},
	}
}

// f32 returns a tensor whose element i is at(i).
func f32(g *dist.Group, n int, at func(i int) float64) tensor.Tensor {
	x := zeros(g, n)
	set(x, at)
	return x
}

// launching is locked by the goroutine that launches kernels: goroutines of one rank must not launch at the same time (tensor.Device).
// tensor.New clears memory with a kernel; copies and the operations themselves need none.
var launching sync.Mutex

func zeros(g *dist.Group, n int) tensor.Tensor {
	launching.Lock()
	defer launching.Unlock()
	return tensor.New(g.Device(), tensor.Float32, n)
}

// want waits for w and compares a result.
func want(w dist.Work, what string, got tensor.Tensor, at func(i int) float64) error {
	if err := w.Wait(); err != nil {
		return err
	}
	return holds(what, got, at)
}

// from is element i of rank's data, mine that of this rank.
func from(rank int) func(i int) float64 { return func(i int) float64 { return tag(rank, i) } }

func mine(g *dist.Group) func(i int) float64 { return from(g.Rank()) }

// sum is element i of the sum over all ranks.
func sum(g *dist.Group, i int) float64 {
	s := 0.0
	for r := range g.Size() {
		s += tag(r, i)
	}
	return s
}

func opBroadcast(g *dist.Group, peer, count int) error {
	x := f32(g, count, mine(g))
	return want(g.Broadcast(x, peer), "broadcast", x, from(peer))
}

// opReduce has a root that waits for peer.
func opReduce(g *dist.Group, peer, count int) error {
	root := (peer + 1) % g.Size()
	x, at := f32(g, count, mine(g)), mine(g)
	if g.Rank() == root {
		at = func(i int) float64 { return sum(g, i) }
	}
	return want(g.Reduce(x, dist.Sum, root), "reduce", x, at)
}

func opAllReduce(g *dist.Group, _, count int) error {
	x := f32(g, count, mine(g))
	return want(g.AllReduce(x, dist.Sum), "allreduce", x, func(i int) float64 { return sum(g, i) })
}

func opGather(g *dist.Group, peer, count int) error {
	root, all := (peer+1)%g.Size(), tensor.Tensor{}
	if g.Rank() == root {
		all = zeros(g, count*g.Size())
	}
	w := g.Gather(all, f32(g, count, mine(g)), root)
	if g.Rank() != root {
		return w.Wait()
	}
	return want(w, "gather", all, func(i int) float64 { return tag(i/count, i%count) })
}

func opAllGather(g *dist.Group, _, count int) error {
	all := zeros(g, count*g.Size())
	return want(g.AllGather(all, f32(g, count, mine(g))), "allgather", all, func(i int) float64 { return tag(i/count, i%count) })
}

func opScatter(g *dist.Group, peer, count int) error {
	x, all := zeros(g, count), tensor.Tensor{}
	if g.Rank() == peer {
		all = f32(g, count*g.Size(), from(peer))
	}
	return want(g.Scatter(x, all, peer), "scatter", x, func(i int) float64 { return tag(peer, g.Rank()*count+i) })
}

func opReduceScatter(g *dist.Group, _, count int) error {
	x := zeros(g, count)
	w := g.ReduceScatter(x, f32(g, count*g.Size(), mine(g)), dist.Sum)
	return want(w, "reducescatter", x, func(i int) float64 { return sum(g, g.Rank()*count+i) })
}

func opAllToAll(g *dist.Group, _, count int) error {
	x := zeros(g, count*g.Size())
	w := g.AllToAll(x, f32(g, count*g.Size(), mine(g)))
	return want(w, "alltoall", x, func(i int) float64 { return tag(i/count, g.Rank()*count+i%count) })
}

// uneven returns rank r's share of the rows, and the number of rows before it.
func uneven(r, count int) (rows, before int) {
	for i := range r {
		before += count + i
	}
	return count + r, before
}

func counts(g *dist.Group, count int) (list []int, total int) {
	for r := range g.Size() {
		n, _ := uneven(r, count)
		list, total = append(list, n), total+n
	}
	return list, total
}

func opAllGatherV(g *dist.Group, _, count int) error {
	rows, total := counts(g, count)
	var at []float64
	for r, n := range rows {
		at = append(at, list(n, from(r))...)
	}
	all := zeros(g, total)
	return want(g.AllGatherV(all, f32(g, rows[g.Rank()], mine(g)), rows), "allgatherv", all, func(i int) float64 { return at[i] })
}

func opReduceScatterV(g *dist.Group, _, count int) error {
	rows, total := counts(g, count)
	_, before := uneven(g.Rank(), count)
	x := zeros(g, rows[g.Rank()])
	w := g.ReduceScatterV(x, f32(g, total, mine(g)), rows, dist.Sum)
	return want(w, "reducescatterv", x, func(i int) float64 { return sum(g, before+i) })
}

// opAllToAllV: rank r sends count+k rows to rank k.
func opAllToAllV(g *dist.Group, _, count int) error {
	send, total := counts(g, count)
	get, before := uneven(g.Rank(), count)
	recv := make([]int, g.Size())
	for i := range recv {
		recv[i] = get
	}
	x := zeros(g, get*g.Size())
	w := g.AllToAllV(x, f32(g, total, mine(g)), recv, send)
	return want(w, "alltoallv", x, func(i int) float64 { return tag(i/get, before+i%get) })
}

// opSend: peer receives from all others. They must wait, because the message is too large for a buffer.
func opSend(g *dist.Group, peer, count int) error {
	count = max(count, 300_000)
	if g.Rank() != peer {
		return g.Send(f32(g, count, mine(g)), peer, 3).Wait()
	}
	x := zeros(g, count)
	for r := range g.Size() {
		if r == peer {
			continue
		}
		if err := want(g.Recv(x, r, 3), "recv", x, from(r)); err != nil {
			return err
		}
	}
	return nil
}

// opRecv: all others receive from peer.
func opRecv(g *dist.Group, peer, count int) error {
	x := f32(g, count, from(peer))
	if g.Rank() != peer {
		return want(g.Recv(x, peer, 4), "recv", x, from(peer))
	}
	var works []dist.Work
	for r := range g.Size() {
		if r != peer {
			works = append(works, g.Send(x, r, 4))
		}
	}
	for _, w := range works {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// opBatch exchanges messages with all ranks at the same time.
func opBatch(g *dist.Group, _, count int) error {
	out, in := f32(g, count, mine(g)), make([]tensor.Tensor, g.Size())
	w := g.Batch(func(b *dist.Batch) {
		for r := range in {
			if in[r] = zeros(g, count); r != g.Rank() {
				b.Recv(in[r], r, 5)
				b.Send(out, r, 5)
			}
		}
	})
	if err := w.Wait(); err != nil {
		return err
	}
	for r := range in {
		if r != g.Rank() {
			if err := holds(fmt.Sprint("batch, from ", r), in[r], from(r)); err != nil {
				return err
			}
		}
	}
	return nil
}
