package gpt

import "github.com/ringo-ml/ringo/nn"

// Config is the size of a model.
type Config struct{ Vocab, Length, Width, Layers, Heads int }

// Bench is the size that bench/train measures.
var Bench = Config{Vocab: 512, Length: 128, Width: 256, Layers: 4, Heads: 4}

// GPT is GPT-2's architecture (Radford et al. 2019) in small, with a head of its own.
type GPT struct {
	Tok, Pos *nn.Embedding
	Blocks   []*Block
	Norm     *nn.LayerNorm
	Head     *nn.Linear
}

// Block is one layer.
type Block struct {
	Norm1 *nn.LayerNorm
	Attn  *nn.Attention
	Norm2 *nn.LayerNorm
	MLP   *nn.MLP
}

// New returns a model without values.
func New(c Config) *GPT {
	m := &GPT{Tok: nn.NewEmbedding(c.Vocab, c.Width), Pos: nn.NewEmbedding(c.Length, c.Width), Norm: nn.NewLayerNorm(c.Width),
		Head: nn.NewLinear(c.Width, c.Vocab)}
	m.Head.B = nil
	for range c.Layers {
		b := &Block{nn.NewLayerNorm(c.Width), nn.NewAttention(c.Width, c.Heads), nn.NewLayerNorm(c.Width), nn.NewMLP(c.Width, 4*c.Width)}
		b.MLP.Act = nn.GELUTanh
		m.Blocks = append(m.Blocks, b)
	}
	return m
}

// Forward returns logits [B, T, vocabulary] for ids [B, T], where T is the model's length.
func (m *GPT) Forward(ids nn.T) nn.T {
	x := m.Tok.Forward(ids).Add(ids.Tape().Use(m.Pos.W))
	for _, b := range m.Blocks {
		x = b.Attn.ForwardAdd(b.Norm1.Forward(x), x)
		x = b.MLP.ForwardAdd(b.Norm2.Forward(x), x)
	}
	return m.Head.Forward(m.Norm.Forward(x))
}
