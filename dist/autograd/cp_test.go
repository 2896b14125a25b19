package autograd_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// ring is causal attention of sequences that are cut over ranks, into equal, consecutive parts (Liu et al. 2023, "Ring Attention"). Its
// input is this rank's queries, keys and values [rows, positions, 3·heads·headDim]. Keys and values go around the ring, and parts of the
// output are joined by their log-sum-exp. In Backward the gradients of keys and values go around with them.
type ring struct {
	g       *dist.Group
	headDim int
}

func (*ring) Name() string { return "ring" }

func (f *ring) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(f.g.Axes(), tensor.Varying, tensor.Varying)
	return in[:1], err
}

// launch runs an attention kernel.
func (f *ring) launch(t *tensor.Tape, op tensor.Op, causal bool, outs, ins []nn.T) {
	a := t.Args(op, ins[0].DType())
	for _, x := range outs {
		a.Out(x)
	}
	for _, x := range ins {
		a.In(x)
	}
	a.Dim[0], a.Dim[1], a.Dim[2] = ins[0].Dim(0), ins[0].Dim(1), ins[0].Dim(2)
	if a.I[0] = f.headDim; causal {
		a.I[1] = 1
	}
	a.F[0] = 1 / math.Sqrt(float64(f.headDim))
	t.Launch()
}

// pass sends x to the next rank, and returns what the previous rank sends.
func (f *ring) pass(x nn.T) nn.T {
	n, rank := f.g.Size(), f.g.Rank()
	y := x.Tape().NewLike(x)
	must(f.g.Batch(func(b *dist.Batch) {
		b.Send(x, (rank+1)%n, 0)
		b.Recv(y, (rank+n-1)%n, 0)
	}).Wait())
	return y
}

// from is the rank whose keys are here after so many passes. Keys of later ranks are hidden.
func (f *ring) from(pass int) int { return (f.g.Rank() - pass + f.g.Size()) % f.g.Size() }

func (f *ring) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	x := in[0]
	rows, n, width := x.Dim(0), x.Dim(1), x.Dim(2)/3
	q, kv := x.Slice(2, 0, width), x.Slice(2, width, 3*width)
	var out, lse nn.T
	for pass := range f.g.Size() {
		if pass > 0 {
			kv = f.pass(kv)
		}
		if f.from(pass) > f.g.Rank() {
			continue
		}
		o, l := c.New(x.DType(), rows, n, width), c.New(x.DType(), rows, width/f.headDim, n)
		f.launch(c.Tape(), ops.OpAttention, pass == 0, []nn.T{o, l}, []nn.T{tensor.Concat(2, q, kv)})
		if pass == 0 {
			out, lse = o, l
		} else {
			out, lse = f.join(out, lse, o, l)
		}
	}
	c.Save(x)
	c.Save(out)
	c.Save(lse)
	return out
}

// join returns the attention over two sets of keys.
func (f *ring) join(o1, l1, o2, l2 nn.T) (o, l nn.T) {
	top := ops.Maximum(l1, l2)
	l = top.Add(l1.Sub(top).Exp().Add(l2.Sub(top).Exp()).Log())
	rows, n, width := o1.Dim(0), o1.Dim(1), o1.Dim(2)
	part := func(o, of nn.T) nn.T {
		w := of.Sub(l).Exp().Transpose(1, 2).Reshape(rows, n, width/f.headDim, 1)
		return o.Reshape(rows, n, width/f.headDim, f.headDim).Mul(w)
	}
	return part(o1, l1).Add(part(o2, l2)).Reshape(rows, n, width), l
}

func (f *ring) Backward(c *tensor.Ctx, g nn.T, grads []nn.T) {
	x, out, lse := c.Saved(0), c.Saved(1), c.Saved(2)
	width := x.Dim(2) / 3
	q, kv := x.Slice(2, 0, width), x.Slice(2, width, 3*width)
	dq, dkv := q.Scale(0), kv.Scale(0)
	for pass := range f.g.Size() {
		if pass > 0 {
			kv, dkv = f.pass(kv), f.pass(dkv)
		}
		if f.from(pass) > f.g.Rank() {
			continue
		}
		d := c.Tape().NewLike(x)
		f.launch(c.Tape(), ops.OpAttentionGrad, pass == 0, []nn.T{d}, []nn.T{tensor.Concat(2, q, kv), out, g, lse})
		dq, dkv = dq.Add(d.Slice(2, 0, width)), dkv.Add(d.Slice(2, width, 3*width))
	}
	if f.g.Size() > 1 {
		dkv = f.pass(dkv) // back to their rank
	}
	grads[0] = tensor.Concat(2, dq, dkv)
}

// gathered is the same attention, made of operations: each rank gathers all keys and values. Parts may differ in size.
func gathered(gather tensor.Function, qkv nn.T, headDim int) nn.T {
	t, rows, n, width := qkv.Tape(), qkv.Dim(0), qkv.Dim(1), qkv.Dim(2)/3
	kv := t.Apply(gather, qkv.Slice(2, width, 3*width))
	heads := func(x nn.T) nn.T { return x.Reshape(rows, x.Dim(1), width/headDim, headDim).Transpose(1, 2) }
	q, k, v := heads(qkv.Slice(2, 0, width)), heads(kv.Slice(2, 0, width)), heads(kv.Slice(2, width, 2*width))
	hidden := make([]float64, n*kv.Dim(1)) // keys after a query's position are hidden
	for i := range hidden {
		if i%kv.Dim(1) > t.Rows().Seq.First+i/kv.Dim(1) {
			hidden[i] = math.Inf(-1)
		}
	}
	scores := tensor.MatMul(q, k, false, true).Scale(1 / math.Sqrt(float64(headDim)))
	p := ops.Softmax(scores.Add(tensor.OfPositions(t.Input(tensor.FromSlice(hidden, n, kv.Dim(1))), scores)))
	return tensor.MatMul(p, v, false, false).Transpose(1, 2).Reshape(rows, n, width)
}

// alone gathers nothing.
type alone struct{}

func (*alone) Name() string { return "alone" }

func (*alone) Forward(_ *tensor.Ctx, in []nn.T) nn.T { return in[0] }

func (*alone) Backward(_ *tensor.Ctx, g nn.T, grads []nn.T) { grads[0] = g }

// sequences is a model of sequences with learned positions, attention and dropout.
type sequences struct {
	Pos  *tensor.Param // [positions, width]
	In   *nn.Linear
	QKV  *nn.Linear
	Drop *nn.Dropout
	Out  *nn.Linear

	first, end int // positions of this rank
	cp         *dist.Group
	attention  func(qkv nn.T) nn.T
	rows       func(b disttest.Batch) tensor.Rows // what it says about the rows of a batch
	lossOf     func(logits, y nn.T) nn.T
	ring       bool // or gathered
}

const cpPositions, cpFeatures, cpWidth, cpHead = 12, 5, 6, 3

func newSequences() model {
	m := &sequences{Pos: tensor.NewParam(tensor.NormalInit(0, 1), cpPositions, cpWidth), In: nn.NewLinear(cpFeatures, cpWidth),
		QKV: nn.NewLinear(cpWidth, 3*cpWidth), Drop: nn.NewDropout(0.3), Out: nn.NewLinear(cpWidth, 5), end: cpPositions,
		attention: whole, lossOf: perPosition}
	m.QKV.B = nil // the gradient of the keys' bias is only rounding, from which AdamW would make a step
	m.rows = func(b disttest.Batch) tensor.Rows { return b.Rows }
	return m
}

func newRing() model {
	m := newSequences().(*sequences)
	m.ring = true
	return m
}

// whole is attention of positions that are not cut.
func whole(qkv nn.T) nn.T {
	return ops.Attention(qkv, cpHead, ops.AttentionOptions{Causal: true})
}

// perPosition divides by all positions of all rows.
func perPosition(logits, y nn.T) nn.T {
	return nn.CrossEntropy(logits, y).Add(tensor.GlobalMean(logits.Square()).Scale(0.1))
}

func (m *sequences) cut(g *ranks) {
	m.cp = g.Group("cp")
	m.first, m.end = share(cpPositions, m.cp)
	m.rows = func(b disttest.Batch) tensor.Rows {
		b.Rows.Over, b.Rows.SeqOver = g.Group("dp", "fsdp", "cp").Axes(), m.cp.Axes()
		return b.Rows
	}
	if m.ring {
		m.attention = func(qkv nn.T) nn.T { return qkv.Tape().Apply(&ring{m.cp, cpHead}, qkv) }
	} else {
		m.gathering(&autograd.AllGather{Group: m.cp, Dim: 1, Counts: cpCounts(m.cp)})
	}
}

// gathering uses attention with all keys and values.
func (m *sequences) gathering(gather tensor.Function) {
	m.attention = func(qkv nn.T) nn.T { return gathered(gather, qkv, cpHead) }
}

func (m *sequences) units(s *fsdp.Sharding, _ *ranks) {
	s.Keep(m.Pos, m.In)
	s.Unit(m.QKV, m.Out)
}

// loss is that of this rank's positions of its sequences.
func (m *sequences) loss(b disttest.Batch) nn.T {
	var in []float64
	var labels []int64
	for i := range b.N {
		set := disttest.Dataset{DType: tensor.Float64, Features: cpFeatures}
		x, y := set.Samples(b.Tape.Device(), (b.First+i)*cpPositions+m.first, m.end-m.first)
		in, labels = append(in, tensor.Floats(x)...), append(labels, tensor.Data[int64](y)...)
	}
	x, rows := tensor.FromSlice(in, b.N, m.end-m.first, cpFeatures), m.rows(b)
	rows.Seq = tensor.Spans{First: m.first, Total: cpPositions}
	h := m.In.Forward(b.Tape.Input(x.WithRows(rows)))
	h = h.Add(tensor.OfPositions(b.Tape.Use(m.Pos).Slice(0, m.first, m.end), h))
	h = m.Out.Forward(m.Drop.Forward(h.Add(m.attention(m.QKV.Forward(h)))))
	return m.lossOf(h.Reshape(-1, 5), tensor.FromSlice(labels, len(labels)))
}

// cpCounts are the positions of each rank.
func cpCounts(cp *dist.Group) []int { return layout.Shares(make([]int, cp.Size()), cpPositions) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// cpJob trains with six sequences a step.
func cpJob(model func() model) job { return job{model: model, training: training{Batch: 6}} }

// Sequences that are cut over ranks train as on one rank. Positions, dropout and losses depend on the place in the whole sequence.
func TestRingAttentionEqualsOneRank(t *testing.T) {
	requireOneRank(t, cpJob(newRing), turns(t, 2, "dp=1,cp=1", "cp=2", "dp=2,cp=2", "cp=3", "fsdp=2,cp=2")...) // in equal parts
}

func TestLongRingAttentionEqualsOneRank(t *testing.T) {
	reliability.AsLong(t, TestRingAttentionEqualsOneRank)
}

func TestGatheredAttentionEqualsOneRank(t *testing.T) {
	requireOneRank(t, cpJob(newSequences), turns(t, 3, "dp=1,cp=1", "cp=2", "dp=2,cp=2", "cp=3", "cp=5")...)
}

func TestLongGatheredAttentionEqualsOneRank(t *testing.T) {
	reliability.AsLong(t, TestGatheredAttentionEqualsOneRank)
}

// Backward of ring attention is the adjoint of its Forward.
func TestRingAdjoint(t *testing.T) {
	for n := 1; n <= 3; n++ {
		disttest.Adjoint(t, n, func(r *dist.Rank) disttest.Communicating { return &ring{r.World, 3} },
			disttest.Operand{Kind: tensor.Varying, Dims: disttest.Dims(2, 3, 18)})
	}
}

// slicing gathers. But its Backward gives each rank only the gradient from this rank's queries.
type slicing struct {
	autograd.AllGather
	to tensor.Kind
}

func (f *slicing) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	first, n := 0, f.Counts[f.Group.Rank()]
	for _, k := range f.Counts[:f.Group.Rank()] {
		first += k
	}
	grads[0] = g.Slice(f.Dim, first, first+n)
}

func (f *slicing) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(f.Group.Axes(), tensor.Varying, f.to)
	return in[:1], err
}

func newSlicing(g *dist.Group, to tensor.Kind) *slicing {
	return &slicing{autograd.AllGather{Group: g, Dim: 1, Counts: cpCounts(g)}, to}
}

// Each program forgets that ranks have parts of the same sequences, and is refused before a step is trained.
func TestWrongSequencesAreRefused(t *testing.T) {
	c := cpJob(newRing)
	c.Mesh = "dp=2,cp=2"
	requireRefused(t, c, map[string]wrong[*sequences]{
		"gradients summed over dp only": {func(_ *sequences, g *ranks) { g.sum = g.Group("dp") },
			"axis cp: parameter in.weight[6 5] is the same on all ranks"},
		"Rows do not know that sequences are cut": {func(m *sequences, _ *ranks) {
			m.rows = func(b disttest.Batch) tensor.Rows { return b.Rows }
		}, "set SeqOver"},
		"built-in attention within the part": {func(m *sequences, _ *ranks) { m.attention = whole },
			"would see this rank's part of its sequence only"},
		"keys gathered, Backward slices, saying so": {func(m *sequences, _ *ranks) { m.gathering(newSlicing(m.cp, tensor.Invariant)) },
			"axis cp: input 1 is the same on all ranks"},
		"attention within the part, no ring": {func(m *sequences, _ *ranks) { m.gathering(&alone{}) },
			"it came from matmul, a product of rows of this rank with rows of this rank"},
		"a mean over this rank's positions": {func(m *sequences, _ *ranks) {
			m.lossOf = func(x, _ nn.T) nn.T { return x.Square().Mean() }
		}, "GlobalMean"},
	})
}

// If a Function calls a slice a reduce-scatter, types do not notice it, but the adjoint test does.
func TestAdjointFindsASlicedGradient(t *testing.T) {
	in := disttest.Operand{Kind: tensor.Varying, Dims: disttest.Dims(2, cpPositions/2, 4)}
	require.NoError(t,
		disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return &newSlicing(r.World, tensor.Replicated).AllGather }, in))
	err := disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return newSlicing(r.World, tensor.Replicated) }, in)
	require.ErrorContains(t, err, "is not the adjoint of Forward")
}

// Types do not notice these: the results differ from one rank's.
func TestWrongSequencesDifferFromOneRank(t *testing.T) {
	c := cpJob(newRing)
	want := c.run(t)
	c.Mesh = "dp=2,cp=2"
	c.change = func(n model, _ *ranks) { // the loss divides by the positions of this part
		n.(*sequences).lossOf = func(x, y nn.T) nn.T {
			return ops.CrossEntropy(x, y, ops.CrossEntropyOptions{Count: 6 * cpPositions / 2}).Add(tensor.GlobalMean(x.Square()).Scale(0.1))
		}
	}
	requireDiffers(t, want, c)
}
