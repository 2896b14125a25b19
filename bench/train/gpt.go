package main

import "github.com/ringo-ml/ringo/nn"

const (
	vocabulary = 512
	length     = 128
	width      = 256
	layers     = 4
	heads      = 4
)

// gpt is GPT-2's architecture (Radford et al. 2019) in small, with a head of its own.
type gpt struct {
	Tok, Pos *nn.Embedding
	Blocks   []*block
	Norm     *nn.LayerNorm
	Head     *nn.Linear
}

type block struct {
	Norm1 *nn.LayerNorm
	Attn  *nn.Attention
	Norm2 *nn.LayerNorm
	MLP   *nn.MLP
}

func newGPT() *gpt {
	m := &gpt{Tok: nn.NewEmbedding(vocabulary, width), Pos: nn.NewEmbedding(length, width), Norm: nn.NewLayerNorm(width),
		Head: nn.NewLinear(width, vocabulary)}
	m.Head.B = nil
	for range layers {
		b := &block{nn.NewLayerNorm(width), nn.NewAttention(width, heads), nn.NewLayerNorm(width), nn.NewMLP(width, 4*width)}
		b.MLP.Act = nn.GELUTanh
		m.Blocks = append(m.Blocks, b)
	}
	return m
}

// Forward returns logits [B, T, vocabulary] for ids [B, T].
func (m *gpt) Forward(ids nn.T) nn.T {
	x := m.Tok.Forward(ids).Add(ids.Tape().Use(m.Pos.W))
	for _, b := range m.Blocks {
		x = x.Add(b.Attn.Forward(b.Norm1.Forward(x)))
		x = x.Add(b.MLP.Forward(b.Norm2.Forward(x)))
	}
	return m.Head.Forward(m.Norm.Forward(x))
}
