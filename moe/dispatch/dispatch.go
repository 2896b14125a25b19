package dispatch

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Config says which ranks have tokens and experts, and how rows travel between them.
type Config struct {
	Tokens    *dist.Group // ranks with other tokens of a batch; nil: one rank
	Positions *dist.Group // of them, ranks with other positions of the same rows, in their order; nil: rows are whole
	Experts   *dist.Group // of them, ranks that each have a part of the experts; nil: every rank has all
	Capacity  float64     // places of an expert in training, as a multiple of the mean of its slots; 0: no limit
	Half      bool        // rows travel in bfloat16
}

// Dispatcher brings rows to experts and back. A Dispatcher serves one layer.
type Dispatcher struct {
	c         Config
	earlier   earlier
	swap      swap
	there     way
	home      way
	functions [4]tensor.Function // depart and arrive of there, and of home
	copies    []nn.T             // of what goes back, one for each rank
}

// New returns a Dispatcher.
func New(c Config) *Dispatcher {
	if c.Experts != nil && c.Experts.Size() == 1 {
		c.Experts = nil
	}
	d := &Dispatcher{c: c, earlier: earlier{group: c.Tokens, positions: c.Positions}}
	if g := c.Experts; g != nil {
		d.swap.group = g
		d.there = way{group: g, send: make([]int, g.Size()), recv: make([]int, g.Size()), from: tensor.Varying, to: tensor.Cut}
		d.home = way{group: g, send: d.there.recv, recv: d.there.send, from: tensor.Cut, to: tensor.Varying}
		d.functions = [4]tensor.Function{depart{way: &d.there}, arrive{&d.there}, depart{way: &d.home}, arrive{&d.home}}
	}
	return d
}

// Plan says how the slots of tokens go to experts and back. It lives on the tape's step.
type Plan struct {
	Dropped nn.T // [experts], Int64: of this rank's slots those without a place; none without a capacity

	top    int
	token  nn.T // of each row that experts get, sorted by expert
	back   nn.T // the row of each slot
	counts nn.T // rows of each expert

	capacity int // if not 0, every expert has so many rows, and 0 in token and back is none: others are one more (see limit)
}

// Plan sorts slots by expert. experts [tokens, top] are those that this rank's tokens chose, counts [experts] how many chose each; all
// is the number of slots of all ranks. Of each row of the batch, mine tokens are this rank's; 0: its rows are whole. Nothing waits for the
// device. Inside a Checkpoint the plan is kept, not made again.
func (d *Dispatcher) Plan(experts, counts nn.T, all, mine int) (p Plan) {
	t := experts.Tape()
	token := t.Once(func() nn.T { // in a Checkpoint's second forward p stays zero, and each Once returns what it kept
		p = d.plan(experts, counts, all, mine)
		return p.token
	})
	p = Plan{Dropped: p.Dropped, top: experts.Dim(1), token: token, back: t.Once(func() nn.T { return p.back }), counts: counts}
	if d.c.Capacity > 0 && t.Training() {
		n := counts.Len()
		p.capacity = token.Len() / n
		p.counts = full(t, n, p.capacity)
		p.Dropped = t.Once(func() nn.T { return p.Dropped })
	}
	return p
}

func (d *Dispatcher) plan(experts, counts nn.T, all, mine int) Plan {
	n, top := experts.Dim(0), experts.Dim(1)
	slots := experts.Reshape(n * top)
	_, sorted := ops.Sort(slots, 0, false) // stable: the slots of an expert keep their order
	_, back := ops.Sort(sorted, 0, false)
	token := ops.Gather(ops.Arange(slots.Tape(), tensor.Int64, 0, float64(n), 1).Reshape(n, 1).Broadcast(n, top).Reshape(n*top), 0, sorted)
	p := Plan{top: top, token: token, back: back, counts: counts}
	if d.c.Capacity > 0 && slots.Tape().Training() {
		return d.limit(p, slots, all, mine)
	}
	return p
}

// Run has experts compute: it brings the rows of x [tokens, features] to them as the plan says, calls compute with this rank's rows, sorted
// by expert, and how many each of its experts has, and returns for each token the sum of what compute made of its slots, times weights
// [tokens, top]. It calls meanwhile(0) while rows travel there, and meanwhile(1) while they travel home.
func (d *Dispatcher) Run(p Plan, x, weights nn.T, compute func(rows, counts nn.T) nn.T, meanwhile func(part int)) (y nn.T) {
	rows, from := x.Dim(0), x
	if p.capacity > 0 {
		from = ops.Pad(x, 0, 1, 0)
	}
	in := ops.Embedding(from, p.token)
	switch {
	case d.c.Experts == nil:
		y = compute(in, p.counts)
		meanwhile(0)
		meanwhile(1)
	case p.capacity > 0:
		y = d.exchangeFixed(in, p, compute, meanwhile)
	default:
		y = d.exchange(in, p, compute, meanwhile)
	}
	if p.capacity > 0 {
		y = ops.Pad(y, 0, 1, 0)
	}
	w := weights.Reshape(rows*p.top, 1)
	y = tensor.RowsLike(ops.Embedding(y, p.back), w).Cast(weights.DType()).Mul(w)
	return y.Reshape(rows, p.top, x.Dim(1)).Sum(1).Cast(x.DType())
}

// exchange has the ranks of the experts compute.
func (d *Dispatcher) exchange(rows nn.T, p Plan, compute func(rows, counts nn.T) nn.T, meanwhile func(part int)) nn.T {
	both := rows.Tape().Once(func() nn.T { return rows.Tape().Apply(&d.swap, p.counts) })
	sent := d.pack(rows)
	came := rows.Tape().Apply(d.functions[0], sent.Detach(), both)
	meanwhile(0)
	came = rows.Tape().Apply(d.functions[1], came, sent).Cast(rows.DType())
	order, mine := arrange(both.Slice(0, p.counts.Len(), both.Len()), came.Dim(0), d.c.Experts.Size())
	_, back := ops.Sort(order, 0, false)
	return d.bring(d.pack(ops.Embedding(compute(ops.Embedding(came, order), mine), back)), meanwhile).Cast(rows.DType())
}

// bring sends rows home.
func (d *Dispatcher) bring(y nn.T, meanwhile func(part int)) nn.T {
	came := y.Tape().Apply(d.functions[2], y.Detach())
	meanwhile(1)
	return y.Tape().Apply(d.functions[3], came, y)
}

// pack returns rows as they travel.
func (d *Dispatcher) pack(rows nn.T) nn.T {
	if d.c.Half {
		return rows.Cast(tensor.BFloat16)
	}
	return rows
}

// arrange sorts rows, which lie by the rank they come from, and then by expert, by expert alone: their order, and how many each expert
// has. come are the lengths of these runs.
func arrange(come nn.T, rows, ranks int) (order, counts nn.T) {
	t, n := come.Tape(), come.Len()/ranks
	run := ops.CumSum(ops.Bincount(ops.CumSum(come, 0), rows+1).Slice(0, 0, rows), 0) // a row's run is the number of runs that end before it
	expert := ops.Gather(ops.Arange(t, tensor.Int64, 0, float64(n), 1).Reshape(1, n).Broadcast(ranks, n).Reshape(come.Len()), 0, run)
	_, order = ops.Sort(expert, 0, false)
	return order, ops.Bincount(expert, n)
}
