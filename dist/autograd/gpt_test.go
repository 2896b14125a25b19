package autograd_test

import (
	"testing"

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

const length, heads, headDim, wide, vocab = 5, 3, 2, 7, 11

// layer is a transformer layer: attention whose queries, keys and values are one matrix, then two linear layers. There is dropout of
// probabilities, of hidden features, and of what is added to the residual stream.
type layer struct {
	N1   *nn.LayerNorm
	QKV  *nn.Linear
	Out  *nn.Linear
	Drop *nn.Dropout
	N2   *nn.LayerNorm
	Up   *nn.Linear
	Thin *nn.Dropout
	Down *nn.Linear

	heads func() tensor.Region // heads of this rank; nil: all
	probs uint64               // random key for the dropout of probabilities
}

// gpt is a small language model on flat tokens [rows·length, d]. Heads, hidden features and the vocabulary are unevenly cut over tp. With
// sequence parallelism, so are the tokens between the divided layers.
type gpt struct {
	Tok    *nn.Embedding
	Layers []*layer
	Norm   *nn.LayerNorm
	Head   *nn.Linear

	seq     bool
	tp      *dist.Group // nil: one rank
	first   int         // first token of the vocabulary of this rank
	gather  *autograd.AllGather
	scatter *autograd.ReduceScatter
	chunks  int                            // not 0: tokens are sent in so many pieces; the whole is not kept
	rows    int                            // of the microbatch
	lossOf  func(logits, labels nn.T) nn.T // with tp
}

func newGPT() model {
	const d = heads * headDim
	m := &gpt{Tok: nn.NewEmbedding(vocab, d), Norm: nn.NewLayerNorm(d), Head: nn.NewLinear(d, vocab)}
	for _, name := range []string{"first", "second"} {
		m.Layers = append(m.Layers, &layer{N1: nn.NewLayerNorm(d), QKV: nn.NewLinear(d, 3*d), Out: nn.NewLinear(d, d), Drop: nn.NewDropout(0.1),
			N2: nn.NewLayerNorm(d), Up: nn.NewLinear(d, wide), Thin: nn.NewDropout(0.2), Down: nn.NewLinear(wide, d), probs: tensor.HashName(name)})
	}
	return m
}

func newSequenceGPT() model {
	m := newGPT().(*gpt)
	m.seq = true
	return m
}

// tokens returns ids [rows, length] and the ids that follow them. Each one depends on the one before.
func tokens(b disttest.Batch) (ids, next tensor.Tensor) {
	x, y := make([]int64, b.N*length), make([]int64, b.N*length)
	for i := range x {
		k := b.First*length + i
		x[i] = int64(k * k % 19 % vocab)
		y[i] = (3*x[i] + int64(k%2)) % vocab
	}
	return tensor.FromSlice(x, b.N, length).WithRows(b.Rows), tensor.FromSlice(y, b.N, length).WithRows(b.Rows)
}

func (m *gpt) loss(b disttest.Batch) nn.T {
	t := b.Tape
	ids, next := tokens(b)
	m.rows = b.N
	m.share()
	x := m.embed(t, t.Input(ids).Reshape(-1))
	x = m.Layers[0].forward(m, x)
	x = t.Checkpoint(func(in ...nn.T) nn.T { return m.Layers[1].forward(m, in[0]) }, x)
	logits, next := m.Head.Forward(m.Norm.Forward(x)), t.Input(next).Reshape(-1)
	if m.tp == nil {
		return nn.CrossEntropy(logits, next)
	}
	return m.lossOf(logits, next)
}

func (m *gpt) crossEntropy(logits, labels nn.T) nn.T {
	return logits.Tape().Apply(&vocabLoss{m.tp, m.first}, logits, labels)
}

// share sets how many tokens of the microbatch each rank has.
func (m *gpt) share() {
	if m.seq && m.tp != nil {
		m.gather.Counts = layout.Shares(make([]int, m.tp.Size()), m.rows*length)
		m.scatter.Counts = m.gather.Counts
	}
}

func (l *layer) forward(m *gpt, x nn.T) nn.T {
	y := l.QKV.Forward(l.N1.Forward(x))
	o := ops.AttentionOptions{Causal: true, Drop: 0.2, Layer: l.probs}
	if l.heads != nil {
		o.At = l.heads()
	}
	y = ops.Attention(y.Reshape(m.rows, length, y.Dim(1)), headDim, o)
	y = l.Out.Forward(y.Reshape(m.rows*length, y.Dim(2)))
	x = x.Add(l.Drop.Forward(y))
	return x.Add(l.Down.Forward(l.Thin.Forward(l.Up.Forward(l.N2.Forward(x)).GELU())))
}

// embed looks up the ids that this rank has, uses zeros for the others, and sums over the ranks.
func (m *gpt) embed(t *tensor.Tape, ids nn.T) nn.T {
	w := t.Use(m.Tok.W)
	if m.tp == nil {
		return ops.Embedding(w, ids)
	}
	at, mine := within(ids, m.first, w.Dim(0))
	y := ops.Embedding(w, at).Mul(mine.Cast(tensor.Float64).Reshape(-1, 1))
	if m.Tok.Post == nil {
		return y
	}
	return t.Apply(m.Tok.Post, y)
}

// within returns the index of ids among the n ids of the vocabulary from first on (0 for others), and which ids are there.
func within(ids nn.T, first, n int) (at, mine nn.T) {
	c := func(v int) nn.T { return ops.Arange(ids.Tape(), tensor.Int64, float64(v), float64(v+1), 1) }
	at = ids.Sub(c(first))
	mine = ops.And(at.Ge(c(0)), at.Lt(c(n)))
	return at.Mul(mine.Cast(tensor.Int64)), mine
}

func (m *gpt) cut(g *ranks) {
	m.tp, m.lossOf = g.Group("tp"), m.crossEntropy
	var pre, post tensor.Function = &autograd.Copy{Group: m.tp}, &autograd.Sum{Group: m.tp}
	if m.seq {
		m.gather, m.scatter = &autograd.AllGather{Group: m.tp}, &autograd.ReduceScatter{Group: m.tp}
		pre, post = m.gather, m.scatter
		if m.chunks > 0 {
			g, s := &autograd.TokenGather{AllGather: *m.gather, Chunks: m.chunks},
				&autograd.TokenScatter{ReduceScatter: *m.scatter, Chunks: m.chunks}
			m.gather, m.scatter, pre, post = &g.AllGather, &s.ReduceScatter, g, s
		}
	}
	cutAlong(m.tp, m.Tok.W, 0, 1, 1)
	m.first, _ = share(vocab, m.tp)
	m.Tok.Post = post
	for _, l := range m.Layers {
		l.cut(m, pre, post)
	}
	cutAlong(m.tp, m.Head.W, 0, 1, 1)
	cutAlong(m.tp, m.Head.B, 0, 1, 1)
	m.Head.Pre = pre
	params := nn.ParamsOf(m)
	for _, p := range params {
		if m.seq && !p.IsCut() { // the parameter is used on a part of the tokens
			p.Through(&autograd.Copy{Group: m.tp})
		}
	}
}

func (l *layer) cut(m *gpt, pre, post tensor.Function) {
	cutAlong(m.tp, l.QKV.W, 0, 3, headDim)
	cutAlong(m.tp, l.QKV.B, 0, 3, headDim)
	cutAlong(m.tp, l.Out.W, 1, 1, headDim)
	cutAlong(m.tp, l.Up.W, 0, 1, 1)
	cutAlong(m.tp, l.Up.B, 0, 1, 1)
	cutAlong(m.tp, l.Down.W, 1, 1, 1)
	l.QKV.Pre, l.Out.Post, l.Up.Pre, l.Down.Post = pre, post, pre, post
	head, _ := share(heads, m.tp)
	l.heads = func() tensor.Region { return tensor.Region{Cols: tensor.Span{First: head, Total: heads}} }
	column, _ := share(wide, m.tp)
	l.Thin.At = func(nn.T) tensor.Region { return tensor.Region{Cols: tensor.Span{First: column, Total: wide}} }
	if m.seq {
		l.Drop.At = func(nn.T) tensor.Region {
			token, _ := share(m.rows*length, m.tp)
			return tensor.Region{Rows: tensor.Span{First: token, Total: m.rows * length}}
		}
	}
}

func (m *gpt) units(s *fsdp.Sharding, _ *ranks) {
	s.Keep(m.Tok, m.Norm, m.Head)
	for _, l := range m.Layers {
		s.Unit(l)
	}
}

// A transformer with divided heads, hidden features and vocabulary trains as on one rank, under ddp, fsdp and both.
func TestTensorParallelEqualsOneRank(t *testing.T) {
	requireOneRank(t, job{model: newGPT}, turns(t, 0, "fsdp=3,tp=2", "dp=2,tp=2", "tp=3", "dp=2,fsdp=2,tp=2", "fsdp=2,tp=1")...)
}

func TestLongTensorParallelEqualsOneRank(t *testing.T) {
	reliability.AsLong(t, TestTensorParallelEqualsOneRank)
}

// The same with tokens that are cut between the divided layers. With five ranks of data, one has no rows.
func TestSequenceParallelEqualsOneRank(t *testing.T) {
	requireOneRank(t, job{model: newSequenceGPT}, turns(t, 0, "dp=2,tp=2", "fsdp=3,tp=2", "dp=2,fsdp=2,tp=2", "tp=3", "dp=5,tp=2")...)
}

func TestLongSequenceParallelEqualsOneRank(t *testing.T) {
	reliability.AsLong(t, TestSequenceParallelEqualsOneRank)
}
