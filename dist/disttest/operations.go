package disttest

import (
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Operation is a row of the table of operations. What a rank gives and must get follows from it; see call.
type Operation struct {
	Name    string
	form    form
	rooted  bool // one rank gives all data, or gets it
	reduces bool
	byRows  bool // ranks have parts of different sizes
	start   func(c *call, dst, src tensor.Tensor) dist.Work
	pairs   func(c *call, from, to int) bool // of messages: whether there is one
	batched bool                             // messages are sent and received together
	least   int                              // elements for which a message must wait for its receiver, if that matters
}

// form is which tensors an operation takes on a rank.
type form uint8

const (
	nothing   form = iota
	whole          // one tensor, input and output
	gathers        // the input is a part; the output has a part of every rank
	scatters       // the input has a part for every rank; the output is a part
	exchanges      // both have a part for every rank
	messages       // one for each pair of ranks
)

var operations = []Operation{
	{Name: "broadcast", form: whole, rooted: true, start: func(c *call, x, _ tensor.Tensor) dist.Work { return c.g.Broadcast(x, c.root) }},
	{Name: "reduce", form: whole, rooted: true, reduces: true, start: func(c *call, x, _ tensor.Tensor) dist.Work {
		return c.g.Reduce(x, c.op, c.root)
	}},
	{Name: "allreduce", form: whole, reduces: true, start: func(c *call, x, _ tensor.Tensor) dist.Work { return c.g.AllReduce(x, c.op) }},
	{Name: "gather", form: gathers, rooted: true, start: func(c *call, dst, src tensor.Tensor) dist.Work {
		return c.g.Gather(dst, src, c.root)
	}},
	{Name: "allgather", form: gathers, start: func(c *call, dst, src tensor.Tensor) dist.Work { return c.g.AllGather(dst, src) }},
	{Name: "scatter", form: scatters, rooted: true, start: func(c *call, dst, src tensor.Tensor) dist.Work {
		return c.g.Scatter(dst, src, c.root)
	}},
	{Name: "reducescatter", form: scatters, reduces: true, start: func(c *call, dst, src tensor.Tensor) dist.Work {
		return c.g.ReduceScatter(dst, src, c.op)
	}},
	{Name: "alltoall", form: exchanges, start: func(c *call, dst, src tensor.Tensor) dist.Work { return c.g.AllToAll(dst, src) }},
	{Name: "allgatherv", form: gathers, byRows: true, start: func(c *call, dst, src tensor.Tensor) dist.Work {
		return c.g.AllGatherV(dst, src, c.sends(0))
	}},
	{Name: "reducescatterv", form: scatters, reduces: true, byRows: true, start: func(c *call, dst, src tensor.Tensor) dist.Work {
		return c.g.ReduceScatterV(dst, src, c.sends(0), c.op)
	}},
	{Name: "alltoallv", form: exchanges, byRows: true, start: func(c *call, dst, src tensor.Tensor) dist.Work {
		return c.g.AllToAllV(dst, src, c.receives(c.g.Rank()), c.sends(c.g.Rank()))
	}},
	{Name: "barrier", start: func(c *call, _, _ tensor.Tensor) dist.Work { return c.g.Barrier() }},
	{Name: "monitoredbarrier", start: func(c *call, _, _ tensor.Tensor) dist.Work { return c.g.MonitoredBarrier() }},
	{Name: "send", form: messages, rooted: true, least: 300_000, pairs: func(c *call, _, to int) bool { return to == c.root }},
	{Name: "recv", form: messages, rooted: true, pairs: func(c *call, from, _ int) bool { return from == c.root }},
	{Name: "batch", form: messages, batched: true, pairs: func(*call, int, int) bool { return true }},
}

// Messages around a ring, together and each by itself.
var (
	ring   = Operation{Name: "ring", form: messages, batched: true, pairs: toNext}
	around = Operation{Name: "send and recv", form: messages, pairs: toNext}
)

func toNext(c *call, from, to int) bool { return to == (from+1)%c.g.Size() }

// Operations returns the kinds of operations of the fault matrix.
func Operations() []Operation { return slices.Clone(operations) }

// operation returns a row.
func operation(name string) *Operation {
	if name == ring.Name {
		return &ring
	}
	return &operations[slices.IndexFunc(operations, func(o Operation) bool { return o.Name == name })]
}

// collectives returns the operations of a whole group whose calls do not name a peer.
func collectives() []*Operation {
	var out []*Operation
	for i := range operations {
		if operations[i].form != messages {
			out = append(out, &operations[i])
		}
	}
	return out
}

// Run does the operation on every rank of g, with about count elements, and checks the result. All other ranks wait for rank peer, in
// this call or in the next one.
func (o Operation) Run(g *dist.Group, peer, count int) error {
	c := call{Operation: &o, root: peer, count: max(count, o.least), rows: func(_, to int) int { return count + to }}
	if o.rooted && (o.reduces || o.form == gathers) { // the root waits, for all others
		c.root = (peer + 1) % g.Size()
	}
	return c.run(g)
}

// sum all-reduces so many elements.
func sum(g *dist.Group, d tensor.DType, count int) error {
	return call{Operation: operation("allreduce"), dtype: d, count: count}.run(g)
}

// want waits for w and compares a result.
func want(w dist.Work, what string, got tensor.Tensor, at func(i int) float64) error {
	if err := w.Wait(); err != nil {
		return err
	}
	return holds(what, got, at)
}
