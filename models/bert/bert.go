package bert

import (
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Model is an encoder of texts.
type Model struct {
	Config     Config `nn:"-"`
	Embeddings *Embeddings
	Blocks     []*Block
	Pooler     *nn.Linear // of Hugging Face's files, which sentences do not use: frozen, so that it is saved again; nil: the files have none

	origin origin
}

// Embeddings makes vectors of tokens.
type Embeddings struct {
	Tok  *nn.Embedding
	Pos  *nn.Positions
	Type *nn.Embedding
	Norm *nn.LayerNorm
}

// Block is one layer: attention and an MLP, each with a residual connection around it and a norm behind that.
type Block struct {
	Attn  *Attention
	Norm1 *nn.LayerNorm
	In    nn.Layer // what the MLP reads goes through it: nothing happens, but package tp puts a collective there
	MLP   *nn.MLP
	Norm2 *nn.LayerNorm
}

// Attention is bidirectional self-attention: a token sees all of its text, and no padding. The number of heads follows from the sizes of
// its layers' outputs, so the layers may hold only some of the heads.
type Attention struct {
	In      nn.Layer // as Block.In
	Q, K, V *nn.Linear
	Out     *nn.Linear
	HeadDim int
}

// New returns a model without values; nn.Init, or Attach of a parallel package, makes them: weights are normal with a standard deviation of
// 0.02, biases 0.
func New(c Config) (*Model, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	m := &Model{Config: c, Embeddings: &Embeddings{Tok: table(c.Vocab, c.Width), Pos: nn.NewPositions(c.Positions, c.Width),
		Type: table(c.Types, c.Width), Norm: c.norm()}}
	for range c.Layers {
		a := &Attention{In: nn.Sequential{}, Q: linear(c.Width, c.Width), K: linear(c.Width, c.Width), V: linear(c.Width, c.Width),
			Out: linear(c.Width, c.Width), HeadDim: c.Width / c.Heads}
		nn.Together(a.Q, a.K, a.V)
		mlp := &nn.MLP{Up: linear(c.Width, c.Hidden), Down: linear(c.Hidden, c.Width), Act: nn.GELU}
		m.Blocks = append(m.Blocks, &Block{Attn: a, Norm1: c.norm(), In: nn.Sequential{}, MLP: mlp, Norm2: c.norm()})
	}
	return m, nil
}

// Forward returns the features [batch, time, width] of tokens ids [batch, time], Int64 or Int32. Text i has lengths[i] tokens, and what
// follows is padding: no token sees it, and features there mean nothing. BERT's dropout is not part of the model.
func (m *Model) Forward(ids, lengths nn.T) nn.T {
	x, o := m.Embeddings.Forward(ids), ops.AttentionOptions{KeyLengths: lengths}
	if u := ops.Unpad(ids, lengths); u != nil { // layers compute no padding
		x, o = u.Remove(x), ops.AttentionOptions{Unpadded: u}
	}
	for _, b := range m.Blocks {
		x = b.forward(x, o)
	}
	if o.Unpadded != nil {
		return o.Unpadded.Restore(x)
	}
	return x
}

// Forward returns [batch, time, width] for tokens ids [batch, time], all of type 0.
func (e *Embeddings) Forward(ids nn.T) nn.T {
	x := e.Pos.Forward(e.Tok.Forward(ids), 0)
	return e.Norm.Forward(x.Add(x.Tape().Use(e.Type.W).Slice(0, 0, 1)))
}

func (b *Block) forward(x nn.T, o ops.AttentionOptions) nn.T {
	x = b.Norm1.Forward(b.Attn.Out.ForwardAdd(b.Attn.heads(b.Attn.In.Forward(x), o), x))
	return b.Norm2.Forward(b.MLP.ForwardAdd(b.In.Forward(x), x))
}

// heads returns the joined outputs of all heads.
func (a *Attention) heads(x nn.T, o ops.AttentionOptions) nn.T {
	q, k, v := nn.QKV(x, a.Q, a.K, a.V)
	return ops.CrossAttention(q, k, v, a.HeadDim, o)
}

// Settings returns what the parameters do not say (nn.Configured), such as other heads of the same matrices.
func (m *Model) Settings() any { return m.Config }

// Embed returns the vectors [..., width] of texts ids [..., time] with these lengths [...], as sentence-transformers' encode does.
func (m *Model) Embed(ids, lengths nn.T) nn.T {
	time, dims := ids.Dim(-1), append(lengths.Shape().Dims, m.Config.Width)
	lengths = lengths.Reshape(-1)
	x := m.Forward(ids.Reshape(-1, time), lengths)
	if x.DType().IsHalf() { // a mean, and the lengths of vectors, need more bits
		x = x.Cast(tensor.Float32)
	}
	if m.Config.Pooling == CLS {
		x = x.Slice(1, 0, 1)
	} else {
		x = tensor.MatMul(weights(lengths, time, x.DType()), x, false, false)
	}
	x = x.Reshape(dims...)
	if m.Config.Normalize {
		x = nn.Normalize(x)
	}
	return x
}

// weights returns those of a mean of tokens [batch, 1, time]: 1/length, and 0 for padding.
func weights(lengths nn.T, time int, d tensor.DType) nn.T {
	t := lengths.Tape()
	n := lengths.Reshape(-1, 1)
	real := ops.Arange(t, lengths.DType(), 0, float64(time), 1).Lt(n).Cast(d)
	return real.Div(ops.Clamp(n.Cast(d), 1, math.Inf(1))).Reshape(-1, 1, time)
}
