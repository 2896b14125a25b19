package main

import (
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// benchOp is an operation that can be measured. Its buffers are a, of the full size, and b, another one of that size.
type benchOp struct {
	name string
	kind backend.Kind
	// bus returns how many bytes a rank must move, relative to the full buffer.
	bus  func(n float64) float64
	call func(c *benchCase) dist.Work
	// input is the tensor that this rank gives; zero if none.
	input func(c *benchCase) tensor.Tensor
	// output is the tensor with the result of this rank; zero if none.
	output func(c *benchCase) tensor.Tensor
	// want returns the right value of element i of the output.
	want func(c *benchCase, i int) float32
}

// benchCase is an operation of one size among the ranks of a group. full is the number of elements of the full buffer, a
// multiple of the number of ranks.
type benchCase struct {
	op      *benchOp
	g       *dist.Group
	n, rank int
	full    int
	a, b    tensor.Tensor // each has full elements
	even    tensor.Tensor // this rank's part of b
	uneven  tensor.Tensor // this rank's part of b in the V forms
	counts  []int         // rows of each rank in the V forms
	send    []int         // of alltoallv
	recv    []int
}

func newCase(op *benchOp, g *dist.Group, bytes int, a, b tensor.Tensor) *benchCase {
	c := &benchCase{op: op, g: g, n: g.Size(), rank: g.Rank()}
	c.full = benchElems(op, bytes, c.n)
	c.a, c.b = first(a, c.full), first(b, c.full)
	part := c.full / c.n
	c.counts = make([]int, c.n)
	for i := range c.counts {
		c.counts[i] = part
	}
	c.counts[0] += part / 2
	c.counts[c.n-1] -= part / 2
	c.send, c.recv = make([]int, c.n), make([]int, c.n)
	for i := range c.n {
		c.send[i] = c.counts[(i-c.rank+c.n)%c.n]
		c.recv[i] = c.counts[(c.rank-i+c.n)%c.n]
	}
	c.even, c.uneven = first(b, part), first(b, c.counts[c.rank])
	return c
}

// first is the first elements of a tensor that outlives it.
func first(x tensor.Tensor, count int) tensor.Tensor {
	return tensor.FromPtr(x.Device(), x.Ptr(), x.DType(), count)
}

// benchElems returns how many floats a buffer of so many bytes has with n ranks: at least one for each part.
func benchElems(op *benchOp, bytes, n int) int {
	if op.kind == backend.Barrier {
		return n
	}
	return max(bytes/4/n, 1) * n
}

// bytes is the size that the table shows.
func (c *benchCase) bytes() int {
	if c.op.kind == backend.Barrier {
		return 0
	}
	return 4 * c.full
}

func (c *benchCase) part() tensor.Tensor  { return c.even }
func (c *benchCase) mine() tensor.Tensor  { return c.uneven }
func (c *benchCase) whole() tensor.Tensor { return c.a }
func (c *benchCase) other() tensor.Tensor { return c.b }
func (c *benchCase) none() tensor.Tensor  { return tensor.Tensor{} }

func (c *benchCase) atRoot(x tensor.Tensor) tensor.Tensor {
	if c.rank == 0 {
		return x
	}
	return tensor.Tensor{}
}
func (c *benchCase) wholeAtRoot() tensor.Tensor { return c.atRoot(c.a) }

// value is element i of rank's input: whole numbers so small that sums are exact.
func value(rank, i int) float32 { return float32((3*rank+7*i)%12 - 5) }

// sum is the sum over ranks of element i.
func (c *benchCase) sum(i int) float32 {
	s := float32(0)
	for r := range c.n {
		s += value(r, i)
	}
	return s
}

// owner returns the rank whose part contains element i of the full buffer, and the element's place in that part.
func owner(i int, counts []int) (rank, at int) {
	for rank = range counts {
		if i < counts[rank] {
			return rank, i
		}
		i -= counts[rank]
	}
	return len(counts), i
}

func (c *benchCase) gathered(i int) float32 { return value(i/(c.full/c.n), i%(c.full/c.n)) }
func (c *benchCase) gatheredV(i int) float32 {
	r, at := owner(i, c.counts)
	return value(r, at)
}

func offset(counts []int, rank int) int {
	n := 0
	for _, x := range counts[:rank] {
		n += x
	}
	return n
}

func one(float64) float64      { return 1 }
func none(float64) float64     { return 0 }
func others(n float64) float64 { return (n - 1) / n }
func twice(n float64) float64  { return 2 * (n - 1) / n }

// benchOps are the operations, in the order of the help text.
var benchOps = []*benchOp{
	{"allreduce", backend.AllReduce, twice, func(c *benchCase) dist.Work { return c.g.AllReduce(c.a, dist.Sum) },
		(*benchCase).whole, (*benchCase).whole, (*benchCase).sum},
	{"reduce", backend.Reduce, one, func(c *benchCase) dist.Work { return c.g.Reduce(c.a, dist.Sum, 0) },
		(*benchCase).whole, (*benchCase).wholeAtRoot, (*benchCase).sum},
	{"broadcast", backend.Broadcast, one, func(c *benchCase) dist.Work { return c.g.Broadcast(c.a, 0) },
		(*benchCase).wholeAtRoot, (*benchCase).whole, func(_ *benchCase, i int) float32 { return value(0, i) }},
	{"gather", backend.Gather, others, func(c *benchCase) dist.Work { return c.g.Gather(c.wholeAtRoot(), c.part(), 0) },
		(*benchCase).part, (*benchCase).wholeAtRoot, (*benchCase).gathered},
	{"scatter", backend.Scatter, others, func(c *benchCase) dist.Work { return c.g.Scatter(c.part(), c.wholeAtRoot(), 0) },
		(*benchCase).wholeAtRoot, (*benchCase).part,
		func(c *benchCase, i int) float32 { return value(0, c.rank*c.full/c.n+i) }},
	{"allgather", backend.AllGather, others, func(c *benchCase) dist.Work { return c.g.AllGather(c.a, c.part()) },
		(*benchCase).part, (*benchCase).whole, (*benchCase).gathered},
	{"allgatherv", backend.AllGatherV, others, func(c *benchCase) dist.Work { return c.g.AllGatherV(c.a, c.mine(), c.counts) },
		(*benchCase).mine, (*benchCase).whole, (*benchCase).gatheredV},
	{"reducescatter", backend.ReduceScatter, others,
		func(c *benchCase) dist.Work { return c.g.ReduceScatter(c.part(), c.a, dist.Sum) },
		(*benchCase).whole, (*benchCase).part, func(c *benchCase, i int) float32 { return c.sum(c.rank*c.full/c.n + i) }},
	{"reducescatterv", backend.ReduceScatterV, others,
		func(c *benchCase) dist.Work { return c.g.ReduceScatterV(c.mine(), c.a, c.counts, dist.Sum) },
		(*benchCase).whole, (*benchCase).mine,
		func(c *benchCase, i int) float32 { return c.sum(offset(c.counts, c.rank) + i) }},
	{"alltoall", backend.AllToAll, others, func(c *benchCase) dist.Work { return c.g.AllToAll(c.b, c.a) },
		(*benchCase).whole, (*benchCase).other, func(c *benchCase, i int) float32 {
			part := c.full / c.n
			return value(i/part, c.rank*part+i%part)
		}},
	{"alltoallv", backend.AllToAllV, others, func(c *benchCase) dist.Work { return c.g.AllToAllV(c.b, c.a, c.recv, c.send) },
		(*benchCase).whole, (*benchCase).other, func(c *benchCase, i int) float32 {
			from, at := owner(i, c.recv)
			before := 0 // what that rank sends to ranks lower than this one
			for to := range c.rank {
				before += c.counts[(to-from+c.n)%c.n]
			}
			return value(from, before+at)
		}},
	{"barrier", backend.Barrier, none, func(c *benchCase) dist.Work { return c.g.Barrier() },
		(*benchCase).none, (*benchCase).none, nil},
	{"send", backend.Send, one, pingPong, (*benchCase).wholeAtRoot, (*benchCase).pong,
		func(_ *benchCase, i int) float32 { return value(0, i) }},
}

// pingPong sends the buffer from the first rank to the last and back.
func pingPong(c *benchCase) dist.Work {
	switch last := c.n - 1; c.rank {
	case 0:
		if sent := c.g.Send(c.a, last, 0); sent.Wait() != nil {
			return sent // the send failed
		}
		return c.g.Recv(c.a, last, 0)
	case last:
		if got := c.g.Recv(c.a, 0, 0); got.Wait() != nil {
			return got
		}
		return c.g.Send(c.a, 0, 0)
	}
	return dist.Work{}
}

func (c *benchCase) pong() tensor.Tensor {
	if c.rank == 0 || c.rank == c.n-1 {
		return c.a
	}
	return tensor.Tensor{}
}

func benchNames() []string {
	var names []string
	for _, o := range benchOps {
		names = append(names, o.name)
	}
	return names
}

func findBenchOp(name string) *benchOp {
	i := slices.IndexFunc(benchOps, func(o *benchOp) bool { return o.name == name })
	if i < 0 {
		return nil
	}
	return benchOps[i]
}

// write sets the elements of x.
func write(x tensor.Tensor, set func(d []float32)) {
	if x.Device().Host() {
		set(tensor.Data[float32](x))
		return
	}
	h := tensor.NewStaging(memory.Uncounted, x.Device(), x.DType(), x.Len())
	set(tensor.Data[float32](h))
	tensor.Copy(x, h)
}

// verify does the operation once on exact inputs. It reports whether this rank's result is right, and for a reduce whether the input is
// unchanged.
func (c *benchCase) verify() (bool, error) {
	for _, x := range []tensor.Tensor{c.a, c.b} {
		write(x, func(d []float32) {
			for i := range d {
				d[i] = -99
			}
		})
	}
	in, out := c.op.input(c), c.op.output(c)
	if !in.IsZero() {
		write(in, func(d []float32) {
			for i := range d {
				d[i] = value(c.rank, i)
			}
		})
	}
	if err := c.op.call(c).Wait(); err != nil {
		return false, err
	}
	want := func(i int) float32 { return c.op.want(c, i) }
	if out.IsZero() && c.op.kind == backend.Reduce {
		out, want = in, func(i int) float32 { return value(c.rank, i) }
	}
	if !out.IsZero() {
		for i, x := range tensor.Data[float32](tensor.ToHost(out)) {
			if x != want(i) {
				return false, nil
			}
		}
	}
	return true, nil
}
