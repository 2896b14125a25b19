package gpt

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Model is a transformer that predicts the next token.
type Model struct {
	Config Config        `nn:"-"`
	Tok    *nn.Embedding // [vocabulary, width]
	Pos    *nn.Positions // only in GPT-2
	Blocks []*Block
	Norm   nn.Layer
	Head   *nn.Linear // without bias; if the model is tied, its weight is Tok's

	// Embedded, if not nil, is applied to the input of the first block, and Drawn to the logits from which Generate draws a token.
	Embedded, Drawn tensor.Function `nn:"-"`

	// Recompute is activation checkpointing: Backward computes each block again, and nothing but blocks' inputs is kept until then.
	Recompute bool `nn:"-"`

	origin origin
}

// Block is one layer: attention and an MLP, each with a norm before it and a residual connection around it.
type Block struct {
	Norm1    nn.Layer
	Attn     *Attention
	PostAttn nn.Layer // the norm of what attention adds; nil but in Gemma
	Norm2    nn.Layer
	MLP      MLP
	PostMLP  nn.Layer
}

// MLP is an *nn.MLP, an *nn.GatedMLP or a *moe.Layer.
type MLP interface {
	nn.Layer
	ForwardAdd(x, r nn.T) nn.T
}

// Attention is causal self-attention (Vaswani et al. 2017). The number of heads follows from the sizes of its layers' outputs, so the
// layers may hold only some of the heads.
type Attention struct {
	Q, K, V *nn.Linear // queries [.., heads·headDim], keys and values [.., kvHeads·headDim]
	Out     *nn.Linear
	HeadDim int
	Rope    *nn.Rotary `nn:"-"` // nil: no positions, or those of GPT-2

	QNorm   nn.Layer `nn:"q_norm"` // of each head's queries; nil: none
	KNorm   nn.Layer `nn:"k_norm"` // of each head's keys
	nn.Core `nn:"-"`
}

// New returns a model without values; nn.Init, or Attach of a parallel package, makes them. Weights are normal with a standard deviation of
// 0.02. In GPT-2, it is smaller by √(2·Layers) for layers whose output is added to the residual stream. Biases are 0.
func New(c Config) (*Model, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	m := &Model{Config: c, Tok: &nn.Embedding{W: tensor.NewParam(normal, c.Vocab, c.Width)}, Norm: c.norm()}
	var rope, local *nn.Rotary
	if c.kind().rotary {
		rope = c.rope(c.Base, c.Scaling)
	} else {
		m.Pos = nn.NewPositions(c.Positions, c.Width)
	}
	if c.LocalBase > 0 {
		local = c.rope(c.LocalBase, nn.RotaryScaling{})
	}
	for i := range c.Layers {
		q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		a := &Attention{Q: c.heads(q), K: c.heads(kv), V: c.heads(kv), Out: c.residual(q, c.Width), HeadDim: c.HeadDim, Rope: rope,
			QNorm: c.headNorm(), KNorm: c.headNorm(), Core: nn.Core{Scores: c.scores(i)}}
		nn.Together(a.Q, a.K, a.V)
		switch {
		case nth(i, c.NoRopeEvery):
			a.Rope = nil
		case local != nil && c.local(i):
			a.Rope = local
		}
		m.Blocks = append(m.Blocks, &Block{Norm1: c.norm(), Attn: a, PostAttn: c.postNorm(), Norm2: c.norm(), MLP: c.mlp(),
			PostMLP: c.postNorm()})
	}
	m.Head = &nn.Linear{W: m.Tok.W, SoftCap: c.LogitSoftCap}
	if !c.Tied {
		m.Head.W = tensor.NewParam(normal, c.Vocab, c.Width)
	}
	return m, nil
}

var normal = tensor.NormalInit(0, 0.02)

// linear returns a layer with the initialization of all kinds.
func linear(in, out int, bias bool) *nn.Linear {
	l := &nn.Linear{W: tensor.NewParam(normal, out, in)}
	if bias {
		l.B = tensor.NewParam(tensor.Constant(0), out)
	}
	return l
}

// heads returns a layer of queries, keys or values.
func (c *Config) heads(out int) *nn.Linear { return linear(c.Width, out, c.kind().qkvBiases) }

// residual is linear for a layer whose output is added to the residual stream.
func (c *Config) residual(in, out int) *nn.Linear {
	l := linear(in, out, c.kind().biases)
	if !c.kind().rotary {
		l.W = tensor.NewParam(tensor.NormalInit(0, 0.02/math.Sqrt(float64(2*c.Layers))), out, in)
	}
	return l
}

func (c *Config) mlp() MLP {
	if c.kind().experts != nil {
		return c.experts()
	}
	up, down := linear(c.Width, c.Hidden, c.kind().biases), c.residual(c.Hidden, c.Width)
	if !c.kind().rotary {
		return &nn.MLP{Up: up, Down: down, Act: nn.GELUTanh}
	}
	mlp := &nn.GatedMLP{Gate: linear(c.Width, c.Hidden, false), Up: up, Down: down, Act: nn.SiLU}
	nn.Together(mlp.Gate, mlp.Up)
	if c.kind().gemma {
		mlp.Act = nn.GELUTanh
	}
	return mlp
}

func (c *Config) experts() *moe.Layer {
	e := *c.kind().experts
	e.Features, e.Hidden, e.Experts, e.Balance = c.Width, c.Hidden, c.Experts, c.Balance
	e.Router.Top, e.Router.Normalize = c.Top, c.Normalize
	l := moe.NewLayer(e)
	for _, p := range []**tensor.Param{&l.Router.W, &l.Experts.Gate, &l.Experts.Up, &l.Experts.Down} {
		*p = tensor.NewParam(normal, (*p).Dims()...)
	}
	return l
}

// Forward returns logits [batch, time, vocabulary] for tokens ids [batch, time], Int64: at each position, those of the next token. With
// ids [batch, 2, time], a sequence has tokens, and the numbers of the documents that were packed into it: a token sees those of its
// document alone (package data/chat makes such rows). Rotary positions need no others then: they tell distances.
func (m *Model) Forward(ids nn.T) nn.T { return m.Head.Forward(m.Features(ids)) }

// Features returns what Head makes logits of, [batch, time, width]: for a loss that needs no logits (FeatureLoss of package parallel, or
// nn.LinearCrossEntropy). Documents may be given apart, as Documents returns them: where ranks divide sequences, those of whole ones.
func (m *Model) Features(ids nn.T, docs ...nn.T) nn.T { return m.whole().features(ids, nil, docs) }

// Documents returns the tokens of rows x [batch, 2, time], and the numbers of their documents, both [batch, time]. Of other rows there are
// none, and the tokens are x.
func Documents(x nn.T) (ids nn.T, docs []nn.T) {
	if x.NDim() != 3 || x.Dim(1) != 2 {
		return x, nil
	}
	of := func(i int) nn.T { return x.Slice(1, i, i+1).Reshape(x.Dim(0), x.Dim(2)) }
	return of(0), []nn.T{of(1)}
}

// embeddings returns the vectors of tokens. Those of Gemma are multiplied by √Width, which transformers rounds to their type.
func (m *Model) embeddings(ids nn.T) nn.T {
	x := m.Tok.Forward(ids)
	if !m.Config.kind().gemma {
		return x
	}
	s, exp := math.Frexp(math.Sqrt(float64(m.Config.Width)))
	if bits, half := map[tensor.DType]int{tensor.BFloat16: 8, tensor.Float16: 11}[x.DType()]; half {
		s = math.Ldexp(math.RoundToEven(math.Ldexp(s, bits)), -bits)
	}
	return x.Scale(math.Ldexp(s, exp))
}

// apply returns f of x, or x if f is nil.
func apply(f tensor.Function, x nn.T) nn.T {
	if f == nil {
		return x
	}
	return x.Tape().Apply(f, x)
}

func (m *Model) fail(format string, a ...any) {
	panic(&tensor.Failure{Op: "gpt.Forward", Err: fmt.Errorf(format, a...)})
}

// Forward returns [batch·time, width] for tokens x of this shape. Layers may work on a part of the tokens: only attention needs them as
// sequences.
func (b *Block) Forward(x nn.T, batch, time int) nn.T { return b.forward(x, batch, time, nil, nn.T{}) }

func (b *Block) forward(x nn.T, batch, time int, c *ops.KVCache, docs nn.T) nn.T {
	x = add(b.Attn.Out, b.PostAttn, b.Attn.heads(b.Norm1.Forward(x), batch, time, c, docs), x)
	return add(b.MLP, b.PostMLP, b.Norm2.Forward(x), x)
}

// add returns r and what l computes of x, after its norm.
func add(l MLP, norm nn.Layer, x, r nn.T) nn.T {
	if norm == nil {
		return l.ForwardAdd(x, r)
	}
	return r.Add(norm.Forward(l.Forward(x)))
}

// Settings returns what the parameters do not say (nn.Configured): other heads of the same matrices.
func (a *Attention) Settings() any {
	s := struct {
		HeadDim int
		Scores  ops.AttentionScores
		Base    float64
		Scaling nn.RotaryScaling
	}{HeadDim: a.HeadDim, Scores: a.Scores}
	if a.Rope != nil {
		s.Base, s.Scaling = a.Rope.Base, a.Rope.Scaling
	}
	return s
}

// heads returns the joined outputs of all heads.
func (a *Attention) heads(x nn.T, batch, time int, c *ops.KVCache, docs nn.T) nn.T {
	of := func(y nn.T, norm nn.Layer) nn.T {
		features := y.Dim(1)
		if norm != nil {
			y = norm.Forward(y.Reshape(-1, a.HeadDim))
		}
		return y.Reshape(batch, time, features)
	}
	q, k, v := nn.QKV(x, a.Q, a.K, a.V)
	y := a.Attend(of(q, a.QNorm), of(k, a.KNorm), of(v, nil), a.HeadDim, a.Rope, c, docs)
	return y.Reshape(batch*time, y.Dim(2))
}
