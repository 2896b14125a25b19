package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// edges returns where the three edges of each row's graph of four nodes begin and end, among the nodes of this rank.
func (r *rows) edges() (from, to nn.T) {
	graph := func(nodes ...int64) nn.T {
		at := make([]int64, r.n*len(nodes))
		for i := range at {
			at[i] = int64(4*(i/len(nodes))) + nodes[i%len(nodes)]
		}
		return r.rowed(tensor.FromSlice(at, r.n, len(nodes))).Reshape(-1)
	}
	return graph(0, 1, 3), graph(1, 2, 2)
}

// sent returns what nodes [nodes, 2] send along the edges, added up onto base.
func (r *rows) sent(base, nodes nn.T) nn.T {
	from, to := r.edges()
	return ops.ScatterAdd(base, 0, to.Reshape(-1, 1).Broadcast(3*r.n, 2), tensor.RowsLike(ops.Embedding(nodes, from), from))
}

func (r *rows) zeros() nn.T { return r.tape.Zeros(tensor.Float64, 4*r.n, 2) }

// of returns the loss of nodes.
func (r *rows) of(nodes nn.T) nn.T { return nn.MSE(r.D.Forward(nodes.Reshape(-1, 8).Tanh()), r.w) }

// graphs are right programs with rows that send each other messages. Each rank has its graphs whole.
var graphs = map[string]func(r *rows) nn.T{
	"messages": func(r *rows) nn.T {
		h := r.hidden().Reshape(-1, 2)
		return r.of(h.Add(tensor.RowsLike(r.sent(r.zeros(), h), h)))
	},
	"messages onto the rows": func(r *rows) nn.T {
		h := r.hidden().Reshape(-1, 2)
		return r.of(tensor.RowsLike(r.sent(h, h), h).Square())
	},
	"two rounds of messages": func(r *rows) nn.T {
		h := r.hidden().Reshape(-1, 2)
		for range 2 {
			h = h.Sub(tensor.RowsLike(r.sent(r.zeros(), h).Scale(0.5), h).Tanh())
		}
		return r.of(h)
	},
	"the mean of messages": func(r *rows) nn.T {
		h := r.hidden().Reshape(-1, 2)
		from, to := r.edges()
		ones := tensor.RowsLike(from, from).Cast(tensor.Float64).Affine(0, 1)
		count := tensor.RowsLike(ops.ScatterAdd(r.tape.Zeros(tensor.Float64, 4*r.n), 0, to, ones), h)
		return r.of(tensor.RowsLike(r.sent(r.zeros(), h), h).Div(count.Affine(1, 1).Reshape(-1, 1)))
	},
	"messages of the input": func(r *rows) nn.T {
		x := r.in().Slice(1, 0, 8).Reshape(-1, 2)
		return r.of(r.B.Forward(tensor.RowsLike(r.sent(r.zeros(), x), x).Reshape(-1, 8)).Slice(1, 0, 8).Reshape(-1, 2))
	},
	"messages in a Checkpoint": func(r *rows) nn.T {
		h := r.hidden().Reshape(-1, 2)
		return r.of(r.tape.Checkpoint(func(in ...nn.T) nn.T {
			return in[0].Add(tensor.RowsLike(r.sent(r.zeros(), in[0]), in[0]))
		}, h))
	},
	"rows and labels in another order": func(r *rows) nn.T {
		turned := func(x nn.T) nn.T { return tensor.Concat(0, x.Slice(0, r.n/2, r.n), x.Slice(0, 0, r.n/2)) }
		x := r.in()
		l := ops.CrossEntropy(r.C.Forward(r.A.Forward(turned(x))), turned(r.tape.Input(r.y)), ops.CrossEntropyOptions{PerRow: true})
		return l.Sum().Scale(1 / float64(tensor.GlobalCount(x.Slice(1, 0, 1))))
	},
	"the hardest of each rank's": func(r *rows) nn.T {
		l := r.losses().Reshape(-1)
		_, at := ops.TopK(l.Detach(), min(2, r.n))
		top, _ := ops.TopK(r.tape.Apply(&autograd.Gather{Group: r.group}, ops.Gather(l, 0, at)), min(2, r.total))
		return top.Mean()
	},
	"sorted, and back by ScatterAdd": func(r *rows) nn.T {
		h := r.hidden()
		_, at := ops.Sort(h.Detach().Sum(1), 0, false)
		sorted := ops.Embedding(h, at).Tanh()
		back := ops.ScatterAdd(r.tape.Zeros(tensor.Float64, r.n, 8), 0, at.Reshape(-1, 1).Broadcast(r.n, 8), sorted)
		return nn.MSE(r.D.Forward(tensor.RowsLike(back, h)), r.w)
	},
}

// A sum of rows is none of this rank's rows, whatever RowsLike says, if no ScatterAdd made it.
func TestOnlyScatteredRowsAreRows(t *testing.T) {
	for name, loss := range map[string]func(r *rows) nn.T{
		"the sum": func(r *rows) nn.T {
			h := r.hidden()
			return r.D.Forward(tensor.RowsLike(h.Sum(0).Broadcast(r.n, 8), h).Square()).Sum()
		},
		"a product": func(r *rows) nn.T {
			h := r.hidden().Slice(1, 0, r.n)
			return nn.GlobalMean(h.Mul(tensor.RowsLike(tensor.MatMul(h, h, true, false), h)))
		},
		"messages, and their sum": func(r *rows) nn.T {
			h := r.hidden().Reshape(-1, 2)
			all := r.sent(r.zeros(), h).Sum(0).Broadcast(4*r.n, 2)
			return r.of(h.Mul(tensor.RowsLike(all, h)))
		},
	} {
		assert.ErrorContains(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			model := newParts()
			disttest.Must(attachParts(r, model, false))
			return tensor.Try(func() { loss(model.split(tensor.NewTape(r.Device), r.World, 8, 0)) })
		}), "is a partial sum", name)
	}
}

// Without RowsLike, messages are refused, and the error says what to write.
func TestMessagesWithoutRowsLike(t *testing.T) {
	for name, loss := range map[string]func(r *rows, h nn.T) nn.T{
		"added to rows":    func(r *rows, h nn.T) nn.T { return r.of(h.Add(r.sent(r.zeros(), h))) },
		"not linear":       func(r *rows, h nn.T) nn.T { return r.of(r.sent(r.zeros(), h).Tanh()) },
		"times rows":       func(r *rows, h nn.T) nn.T { return r.of(h.Mul(r.sent(r.zeros(), h).Scale(0.5))) },
		"added to sums":    func(r *rows, h nn.T) nn.T { return r.of(h.Add(r.sent(r.zeros(), h).Reshape(-1, 2))) },
		"onto rows, ReLU":  func(r *rows, h nn.T) nn.T { return r.of(r.sent(h, h).ReLU()) },
		"in the next step": func(r *rows, h nn.T) nn.T { return r.of(h.Sub(r.sent(r.sent(r.zeros(), h), h))) },
	} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			model := newParts()
			disttest.Must(attachParts(r, model, false))
			return tensor.Try(func() {
				b := model.split(tensor.NewTape(r.Device), r.World, 8, 0)
				loss(b, b.hidden().Reshape(-1, 2))
			})
		})
		require.Error(t, err, name)
		assert.ErrorContains(t, err, "tensor.RowsLike(added, rows)", name)
	}
}

// Where this rank's order says to which of several sums a row belongs, other ranks have another order: a warning, but for what all sums
// have alike.
func TestOrderOfOwnRows(t *testing.T) {
	weigh := func(r *rows, sums nn.T) nn.T { // others for each
		return sums.Mul(ops.Arange(r.tape, tensor.Float64, 1, float64(1+sums.Len()), 1)).Sum().Scale(1. / 7)
	}
	order := func(r *rows, x nn.T) nn.T {
		_, at := ops.Sort(x.Detach(), 0, false)
		return at
	}
	for name, f := range map[string]func(r *rows) nn.T{
		"losses by their order": func(r *rows) nn.T {
			l := r.losses()
			return weigh(r, ops.ScatterAdd(r.tape.Zeros(tensor.Float64, 9), 0, order(r, l), l))
		},
		"features by the order of losses": func(r *rows) nn.T {
			at := order(r, r.losses()).Reshape(-1, 1).Broadcast(r.n, 8)
			return weigh(r, ops.ScatterAdd(r.tape.Zeros(tensor.Float64, 9, 8), 0, at, r.hidden()).Sum(1))
		},
		"the largest": func(r *rows) nn.T {
			l := r.losses()
			v := ops.Gather(l, 0, chosen(r, 2))
			return weigh(r, ops.ScatterAdd(r.tape.Zeros(tensor.Float64, 5), 0, chosen(r, 2), v))
		},
	} {
		assert.Regexp(t, `rows that a rank chose by values of its own rows.*; they are chosen in \S*graphs_test\.go:\d`,
			warnedIn(t, dist.Run, 2, 5, func(r *rows) { r.backward(f(r)) }), name)
	}
	for name, loss := range graphs {
		assert.Empty(t, warnedIn(t, dist.Run, 2, 5, func(r *rows) { r.backward(loss(r)) }), name)
	}
}

// RowsLike takes what ScatterAdd added up onto rows, and no other sum.
func TestSumsAreNoRows(t *testing.T) {
	for name, f := range map[string]func(h nn.T) nn.T{
		"without a gradient": func(h nn.T) nn.T { return h.Detach().Sum(0).Broadcast(h.Dim(0), 8) },
		"with one":           func(h nn.T) nn.T { return h.Sum(0).Broadcast(h.Dim(0), 8) },
		"scaled":             func(h nn.T) nn.T { return h.Detach().Sum(0).Scale(0.5).Broadcast(h.Dim(0), 8) },
	} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			model := newParts()
			disttest.Must(attachParts(r, model, false))
			return tensor.Try(func() {
				b := model.split(tensor.NewTape(r.Device), r.World, 8, 0)
				h := b.hidden()
				b.tape.Backward(nn.GlobalMean(h.Sub(tensor.RowsLike(f(h), h)).Square()))
			})
		})
		assert.ErrorContains(t, err, "is a partial sum", name)
	}
}
