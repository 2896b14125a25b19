package gpt

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
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
	Norm1 nn.Layer
	Attn  *Attention
	Norm2 nn.Layer
	MLP   MLP
}

// MLP is an *nn.MLP, an *nn.GatedMLP, or a *moe.Layer that replaced one.
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
	var rope *nn.Rotary
	if c.kind().rotary {
		rope = nn.NewRotary(c.HeadDim, c.Positions)
		rope.Base, rope.Scaling = c.Base, c.Scaling
	} else {
		m.Pos = nn.NewPositions(c.Positions, c.Width)
	}
	for i := range c.Layers {
		q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
		a := &Attention{Q: c.heads(q), K: c.heads(kv), V: c.heads(kv), Out: c.residual(q, c.Width), HeadDim: c.HeadDim, Rope: rope,
			QNorm: c.headNorm(), KNorm: c.headNorm(), Core: nn.Core{Scores: tensor.AttentionScores{Window: c.windowOf(i)}}}
		if nth(i, c.NoRopeEvery) {
			a.Rope = nil
		}
		m.Blocks = append(m.Blocks, &Block{Norm1: c.norm(), Attn: a, Norm2: c.norm(), MLP: c.mlp()})
	}
	m.Head = &nn.Linear{W: m.Tok.W}
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
	up, down := linear(c.Width, c.Hidden, c.kind().biases), c.residual(c.Hidden, c.Width)
	if !c.kind().rotary {
		return &nn.MLP{Up: up, Down: down, Act: nn.GELUTanh}
	}
	return &nn.GatedMLP{Gate: linear(c.Width, c.Hidden, false), Up: up, Down: down, Act: nn.SiLU}
}

// Forward returns logits [batch, time, vocabulary] for tokens ids [batch, time], Int64: at each position, those of the next token.
func (m *Model) Forward(ids nn.T) nn.T { return m.Head.Forward(m.whole().features(ids, nil)) }

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
func (b *Block) Forward(x nn.T, batch, time int) nn.T { return b.forward(x, batch, time, nil) }

func (b *Block) forward(x nn.T, batch, time int, c *tensor.KVCache) nn.T {
	x = b.Attn.Out.ForwardAdd(b.Attn.heads(b.Norm1.Forward(x), batch, time, c), x)
	return b.MLP.ForwardAdd(b.Norm2.Forward(x), x)
}

// Settings returns what the parameters do not say (nn.Configured): other heads of the same matrices.
func (a *Attention) Settings() any {
	s := struct {
		HeadDim, Window int
		Base            float64
		Scaling         nn.RotaryScaling
	}{HeadDim: a.HeadDim, Window: a.Scores.Window}
	if a.Rope != nil {
		s.Base, s.Scaling = a.Rope.Base, a.Rope.Scaling
	}
	return s
}

// heads returns the joined outputs of all heads.
func (a *Attention) heads(x nn.T, batch, time int, c *tensor.KVCache) nn.T {
	of := func(l *nn.Linear, norm nn.Layer) nn.T {
		y := l.Forward(x)
		features := y.Dim(1)
		if norm != nil {
			y = norm.Forward(y.Reshape(-1, a.HeadDim))
		}
		return y.Reshape(batch, time, features)
	}
	y := a.Attend(of(a.Q, a.QNorm), of(a.K, a.KNorm), of(a.V, nil), a.HeadDim, a.Rope, c)
	return y.Reshape(batch*time, y.Dim(2))
}
