package main

import (
	"fmt"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

// divide gives each rank its part of the model: first layers, then what is left of the parameters. It returns the ranks that have other
// pairs.
func (o options) divide(r *dist.Rank, m *bert.Model) (nn.Params, *dist.Group, error) {
	size := r.World.Size()
	if size%(o.fsdp*o.tp) != 0 {
		return nil, nil, train.Usagef("-fsdp %d times -tp %d do not divide %d ranks", o.fsdp, o.tp, size)
	}
	mesh, err := r.Mesh(fmt.Sprintf("dp=%d,fsdp=%d,tp=%d", size/o.fsdp/o.tp, o.fsdp, o.tp))
	if err != nil {
		return nil, nil, err
	}
	if o.tp > 1 {
		err := tp.Parallelize(m, tp.Config{Group: mesh.Group("tp")}, func(p *tp.Parallel) {
			p.Vocab(m.Embeddings.Tok)
			for _, b := range m.Blocks {
				b.Attn.In = p.Heads(b.Attn.In, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
				p.Row(b.Attn.Out)
				b.In = p.Columns(b.In, b.MLP.Up)
				p.Row(b.MLP.Down)
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	group := mesh.Group("dp", "fsdp")
	if o.fsdp == 1 {
		params, err := ddp.Attach(group, m, ddp.Config{})
		return params, group, err
	}
	s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp"), DType: tensor.Float32})
	s.Keep(m.Embeddings, m.Pooler)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	params, err := s.Attach(m)
	return params, group, err
}
