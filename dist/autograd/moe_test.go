package autograd_test

import (
	"slices"
	"sync/atomic"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const moeFeatures, moeHidden, moeExperts = 7, 6, 8

var moeSet = disttest.Dataset{DType: tensor.Float64, Features: moeFeatures}

// moeModel is a model with a mixture of experts between two layers. A router sends each token to its top experts (Shazeer et al. 2017),
// which are stacked and divided over ep. A shared expert sees all tokens (Dai et al. 2024, "DeepSeekMoE").
type moeModel struct {
	In       *nn.Linear
	Router   *nn.Linear
	Up, Down *tensor.Param // [experts, hidden, features] and [experts, features, hidden]
	Shared   *nn.Linear
	Out      *nn.Linear

	top      int         // experts of a token
	capacity int         // tokens that an expert takes, from all ranks together; 0: all (dropless)
	ep       *dist.Group // ranks that each have a part of the experts
	all      *dist.Group // ranks that each have a part of the tokens
	aux      func(c auxCase) nn.T
	back     func(f *autograd.AllToAll) tensor.Function // returns tokens to their rank
	dropped  *atomic.Int64                              // counts slots of tokens, on all ranks
	log      func(what string)                          // if not nil, the shared expert works while tokens are being sent
}

func newMoE(top, capacity int, dropped *atomic.Int64) *moeModel {
	m := &moeModel{
		In: nn.NewLinear(moeFeatures, moeFeatures), Router: nn.NewLinear(moeFeatures, moeExperts),
		Up:     tensor.NewParam(tensor.KaimingUniform(moeFeatures), moeExperts, moeHidden, moeFeatures),
		Down:   tensor.NewParam(tensor.KaimingUniform(moeHidden), moeExperts, moeFeatures, moeHidden),
		Shared: nn.NewLinear(moeFeatures, moeFeatures), Out: nn.NewLinear(moeFeatures, 5),
		top: top, capacity: capacity, dropped: dropped, aux: balance,
		back: func(f *autograd.AllToAll) tensor.Function { return f },
	}
	m.Router.B = nil
	return m
}

// cut keeps only this rank's experts.
func (m *moeModel) cut(g *ranks) {
	m.ep, m.all = g.Group("ep"), g.Group("dp", "fsdp", "ep")
	cutAlong(m.ep, m.Up, 0, 1, 1)
	cutAlong(m.ep, m.Down, 0, 1, 1)
}

func (m *moeModel) units(s *fsdp.Sharding, g *ranks) {
	s.Unit(m.In, m.Router)
	s.Unit(m.Up, m.Down).Over(g.over(m.Up), nil)
	s.Unit(m.Shared, m.Out)
}

// auxCase is the input of a balance loss: the router's output for this rank's tokens, and how many tokens chose each expert, on this rank
// and on all.
type auxCase struct {
	logits, probs nn.T
	mine, total   []int64
	top           int
}

// fractions returns the part of the choices that each expert got.
func fractions(t *tensor.Tape, counts []int64) nn.T {
	f, n := make([]float64, len(counts)), int64(0)
	for _, k := range counts {
		n += k
	}
	for e, k := range counts {
		f[e] = float64(k) / float64(max(n, 1))
	}
	return t.Input(tensor.FromSlice(f, len(f)))
}

// balance is the auxiliary loss of Switch Transformers (Fedus et al. 2021) and ST-MoE's z-loss (Zoph et al. 2022), over the tokens of all
// ranks: the fractions are those of all, and both means are global.
func balance(c auxCase) nn.T {
	f := fractions(c.probs.Tape(), c.total)
	aux := tensor.GlobalMean(c.probs.Mul(f)).Scale(moeExperts * moeExperts)
	return aux.Add(tensor.GlobalMean(c.logits.LogSumExp().Square()))
}

func (m *moeModel) loss(b disttest.Batch) nn.T {
	x, y := b.Samples(moeSet)
	h := m.In.Forward(x).Tanh()
	return nn.CrossEntropy(m.Out.Forward(h.Add(m.experts(h))), y)
}

// experts returns what each token gets from its experts, weighted by the router, and from the shared one.
func (m *moeModel) experts(x nn.T) nn.T {
	t, rows := x.Tape(), x.Dim(0)
	logits := m.Router.Forward(x)
	probs := logits.Softmax()
	weights, idx := probs.TopK(m.top)
	p := m.route(tensor.Data[int64](tensor.ToHost(idx)))

	token := make([]int, len(p.kept)) // token of each sent slot
	for i, slot := range p.kept {
		token[i] = slot / m.top
	}
	y, shared := m.dispatch(x, pick(x, token), p)
	y = pick(y, p.sorted)
	groups := t.Input(tensor.FromSlice(p.groups, len(p.groups)))
	y = tensor.GroupedLinear(y, t.Use(m.Up), groups).GELU()
	y = tensor.GroupedLinear(y, t.Use(m.Down), groups)
	y = t.Apply(m.back(&autograd.AllToAll{Group: m.ep, Send: p.recv, Recv: p.send}), pick(y, inverse(p.sorted, len(p.sorted))))
	y = pick(y.Pad(0, 0, 1), inverse(p.kept, rows*m.top)) // a row of zeros for dropped slots
	y = y.Mul(weights.Reshape(rows*m.top, 1)).Reshape(rows, m.top, moeFeatures).Sum(1).Add(shared)
	return tensor.WithAux(y, m.aux(auxCase{logits, probs, p.mine, p.total, m.top}), 0.1)
}

// pick returns rows of x.
func pick(x nn.T, rows []int) nn.T {
	idx := make([]int64, len(rows))
	for i, r := range rows {
		idx[i] = int64(r)
	}
	return tensor.Embedding(x, x.Tape().Input(tensor.FromSlice(idx, len(idx))))
}

// inverse returns the index in list of each of n numbers; len(list) if it is not there.
func inverse(list []int, n int) []int {
	at := slices.Repeat([]int{len(list)}, n)
	for i, k := range list {
		at[k] = i
	}
	return at
}

// routing says how the slots of a batch (top slots for each token) go to their experts and back.
type routing struct {
	kept        []int   // sent slots, by expert
	send, recv  []int   // rows to and from the ranks of ep
	sorted      []int   // the received rows, by expert
	groups      []int64 // how many rows each of this rank's experts gets
	mine, total []int64 // choices of each expert, by this rank's tokens and by all
}

// route plans on the host, because the sizes of tensors depend on how many rows come.
func (m *moeModel) route(ids []int64) *routing {
	p := &routing{mine: make([]int64, moeExperts), total: make([]int64, moeExperts)}
	for _, e := range ids {
		p.mine[e]++
	}
	before := m.count(p)
	lists := make([][]int, moeExperts)
	for slot, e := range ids {
		if before[e]++; m.capacity == 0 || before[e] <= int64(m.capacity) {
			lists[e] = append(lists[e], slot)
		}
	}
	sizes := make([]int64, moeExperts)
	for e, list := range lists {
		p.kept = append(p.kept, list...)
		sizes[e] = int64(len(list))
	}
	m.dropped.Add(int64(len(ids) - len(p.kept)))
	m.sizes(p, sizes)
	return p
}

// count sets p.total. It returns how many tokens of earlier ranks chose each expert: they come first.
func (m *moeModel) count(p *routing) (before []int64) {
	all := make([]int64, moeExperts*m.all.Size())
	must(m.all.AllGather(tensor.FromSlice(all, len(all)), tensor.FromSlice(p.mine, moeExperts)).Wait())
	before = make([]int64, moeExperts)
	for i, n := range all {
		if p.total[i%moeExperts] += n; i/moeExperts < m.all.Rank() {
			before[i%moeExperts] += n
		}
	}
	return before
}

// sizes sends the ranks of ep how many rows each of their experts gets from this one.
func (m *moeModel) sizes(p *routing, mine []int64) {
	n, per := m.ep.Size(), moeExperts/m.ep.Size()
	come := make([]int64, moeExperts)
	must(m.ep.AllToAll(tensor.FromSlice(come, moeExperts), tensor.FromSlice(mine, moeExperts)).Wait())
	p.send, p.recv, p.groups = make([]int, n), make([]int, n), make([]int64, per)
	first := make([]int, moeExperts) // first row from rank i for expert e: rows come ordered by rank, then by expert
	at := 0
	for i := range come {
		p.send[i/per] += int(mine[i])
		p.recv[i/per] += int(come[i])
		p.groups[i%per] += come[i]
		first[i], at = at, at+int(come[i])
	}
	for e := range per {
		for i := e; i < moeExperts; i += per {
			for k := range int(come[i]) {
				p.sorted = append(p.sorted, first[i]+k)
			}
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
