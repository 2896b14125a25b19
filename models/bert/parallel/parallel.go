package parallel

import (
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tp"
)

// Config says how a model is divided.
type Config struct {
	DDP  ddp.Config
	FSDP *fsdp.Config // in place of DDP; Attach sets Shard and Replicate
}

// Attach gives each rank its part of m, on a mesh with the axes dp, fsdp and tp: first layers, then what each rank has left of the
// parameters, over the ranks with other texts. These are mesh.Group("dp", "fsdp"). It is collective.
func Attach(mesh *dist.Mesh, m *bert.Model, c Config) (nn.Params, error) {
	if g := mesh.Group("tp"); g.Size() > 1 {
		if err := Divide(m, tp.Config{Group: g}); err != nil {
			return nil, err
		}
	}
	if c.FSDP == nil {
		return ddp.Attach(mesh.Group("dp", "fsdp"), m, c.DDP)
	}
	f := *c.FSDP
	f.Shard, f.Replicate = mesh.Group("fsdp"), mesh.Group("dp")
	s := fsdp.New(f)
	s.Keep(m.Embeddings, m.Pooler)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	return s.Attach(m)
}

// Divide is the part of Attach that divides layers: heads, hidden features, and the vocabulary. Sequence parallelism is refused in Forward.
func Divide(m *bert.Model, c tp.Config) error {
	return tp.Parallelize(m, c, func(p *tp.Parallel) {
		p.Vocab(m.Embeddings.Tok)
		for _, b := range m.Blocks {
			b.Attn.In = p.Heads(b.Attn.In, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
			p.Row(b.Attn.Out)
			b.In = p.Columns(b.In, b.MLP.Up)
			p.Row(b.MLP.Down)
		}
	})
}
