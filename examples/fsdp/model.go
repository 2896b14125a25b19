package main

import (
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	vocabulary = 128 // bytes of ASCII text
	heads      = 4
)

type block struct {
	Norm1 *nn.LayerNorm
	Attn  *nn.Attention
	Norm2 *nn.LayerNorm
	MLP   *nn.MLP
}

func (b *block) Forward(x nn.T) nn.T {
	x = x.Add(b.Attn.Forward(b.Norm1.Forward(x)))
	return x.Add(b.MLP.Forward(b.Norm2.Forward(x)))
}

// gpt is a transformer that predicts the next byte. It does not know about ranks.
type gpt struct {
	Tok, Pos *nn.Embedding
	Blocks   []*block
	Norm     *nn.LayerNorm
	Head     *nn.Linear // its weight is Tok's
}

func newGPT(width, layers, length int) *gpt {
	m := &gpt{Tok: small(vocabulary, width), Pos: small(length, width), Norm: nn.NewLayerNorm(width)}
	for range layers {
		m.Blocks = append(m.Blocks,
			&block{nn.NewLayerNorm(width), nn.NewAttention(width, heads), nn.NewLayerNorm(width), nn.NewMLP(width, 4*width)})
	}
	m.Head = &nn.Linear{W: m.Tok.W}
	return m
}

// small returns a table with GPT-2's initialization.
func small(n, d int) *nn.Embedding {
	return &nn.Embedding{W: tensor.NewParam(tensor.NormalInit(0, 0.02), n, d)}
}

// Forward returns logits [batch, length, vocabulary] for bytes [batch, length].
func (m *gpt) Forward(bytes nn.T) nn.T {
	x := m.Tok.Forward(bytes).Add(bytes.Tape().Use(m.Pos.W))
	for _, b := range m.Blocks {
		x = b.Forward(x)
	}
	return m.Head.Forward(m.Norm.Forward(x))
}

// attached is a model that is ready to be trained.
type attached struct {
	params nn.Params
	norm   optim.Norm    // nil: every rank has all gradients
	sent   func() uint64 // bytes that this rank has sent for parameters and gradients
}

// attach divides the model over all ranks; stage 0 copies it.
func (m *gpt) attach(o options, stage int, r *dist.Rank) (attached, error) {
	dtype := tensor.Float32
	if o.half {
		dtype = tensor.BFloat16
	}
	if stage == 0 {
		g := r.World.With(dist.Name("ddp"))
		params, err := ddp.Attach(g, m, ddp.Config{DType: dtype, Seed: 1})
		return attached{params, nil, func() uint64 { return g.Stats().Wire["allreduce"] }}, err
	}
	s, params, err := m.shard(fsdp.Config{Shard: r.World, Stage: stage, Seed: 1, Compute: dtype})
	return attached{params, s, func() uint64 {
		g := s.Groups()
		return g[0].Stats().Wire["allgatherv"] + g[1].Stats().Wire["reducescatterv"]
	}}, err
}

// shard divides the model. Each block is a unit. Parameters that are used at both ends of the model are not gathered again in between.
func (m *gpt) shard(c fsdp.Config) (*fsdp.Sharding, nn.Params, error) {
	s := fsdp.New(c)
	s.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	params, err := s.Attach(m)
	return s, params, err
}
