package optimtest

import "github.com/ringo-ml/ringo/nn"

// The sizes of transformer.
const tokens, positions, features = 31, 8, 16

// transformer is a small GPT-2 (Radford et al. 2019), with an untied head.
type transformer struct {
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

func newTransformer() nn.Layer {
	m := &transformer{Tok: nn.NewEmbedding(tokens, features), Pos: nn.NewEmbedding(positions, features), Norm: nn.NewLayerNorm(features),
		Head: nn.NewLinear(features, tokens)}
	m.Head.B = nil
	for range 2 {
		b := &block{nn.NewLayerNorm(features), nn.NewAttention(features, 2), nn.NewLayerNorm(features), nn.NewMLP(features, 4*features)}
		b.MLP.Act = nn.GELUTanh
		m.Blocks = append(m.Blocks, b)
	}
	return m
}

// Forward returns logits [batch, positions, tokens] for ids [batch, positions].
func (m *transformer) Forward(ids nn.T) nn.T {
	x := m.Tok.Forward(ids).Add(ids.Tape().Use(m.Pos.W))
	for _, b := range m.Blocks {
		x = b.Attn.ForwardAdd(b.Norm1.Forward(x), x)
		x = b.MLP.ForwardAdd(b.Norm2.Forward(x), x)
	}
	return m.Head.Forward(m.Norm.Forward(x))
}
