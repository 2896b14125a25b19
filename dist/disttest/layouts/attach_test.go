package layouts

import (
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// attached is a rank's model, ready to be trained.
type attached struct {
	*model
	params nn.Params
	norm   optim.Norm
	data   *dist.Group                         // ranks with other rows
	sum    *dist.Group                         // ranks with other rows or other positions: they sum gradients
	part   func(x tensor.Tensor) tensor.Tensor // this rank's positions
	loss   func(logits, labels nn.T) nn.T
}

// attachAlone is the model on one rank.
func (p program) attachAlone(r *dist.Rank) (a attached, err error) {
	a = attached{data: r.World, sum: r.World, part: whole, loss: crossEntropy}
	if a.model, err = p.model(); err != nil {
		return a, err
	}
	if err = moe.Parallelize(moe.Ranks{Tokens: r.World}, a.experts...); err == nil { // else microbatches would look like parts of ranks
		a.params = nn.Init(a.Model, r.Device, tensor.Float64, initSeed)
	}
	return a, err
}

func whole(x tensor.Tensor) tensor.Tensor { return x }

func crossEntropy(logits, labels nn.T) nn.T { return nn.CrossEntropy(logits, labels) }

// attach divides the model in the order that the packages need: adapters and what is frozen (program.model), then layers (tp), in them
// experts (moe), then sequences (cp), and last what each rank has left of the parameters, over ranks with other rows or positions (fsdp or
// ddp). Blocks that are computed again (model.logits) are divided as others. The optimizer is made of what attach returns.
func (p program) attach(r *dist.Rank, mesh *dist.Mesh, l layout, seed uint64) (a attached, err error) {
	a = attached{data: mesh.Group("dp", "fsdp", "ep"), sum: mesh.Group("dp", "fsdp", "ep", "cp"), part: whole, loss: crossEntropy}
	if a.model, err = p.model(); err != nil {
		return a, err
	}
	a.again = l.Again
	if l.TP > 1 {
		err = a.divideLayers(mesh, l)
	} else {
		err = a.divideExperts(mesh, nil)
	}
	if err != nil {
		return a, err
	}
	if l.CP > 1 {
		a.divideSequences(mesh)
	}
	if l.TP > 1 || l.EP > 1 { // ranks have other parameters
		a.norm = r.World
	}
	if l.Stage == 0 {
		c := ddp.Config{DType: tensor.Float64, Seed: seed, BucketBytes: l.Bucket, CheckEvery: l.Check}
		c.Over = moe.Over(mesh.Group("dp", "cp"), a.experts...)
		a.params, err = ddp.Attach(a.sum, a.Model, c)
		return a, err
	}
	return a, a.shard(mesh, l, seed)
}

// divideLayers gives each rank its part of every layer. The logits are divided, too, and the loss is computed from the parts.
func (a *attached) divideLayers(mesh *dist.Mesh, l layout) (err error) {
	c := tp.Config{Group: mesh.Group("kv", "same"), Sequence: l.Sequence, Chunks: l.Chunks}
	if mesh.Size("same") > 1 { // ranks have the same heads of keys and values, for other queries
		c.KV, c.Replicas = mesh.Group("kv"), mesh.Group("same")
	}
	failed := tp.Parallelize(a.Model, c, func(p *tp.Parallel) {
		p.Vocab(a.Tok)
		a.Embedded = p.Tokens()
		for _, b := range a.Blocks {
			b.Norm1 = p.Heads(b.Norm1, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
			p.Row(b.Attn.Out)
			switch mlp := b.MLP.(type) {
			case *nn.MLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Up)
				p.Row(mlp.Down)
			case *nn.GatedMLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Gate, mlp.Up)
				p.Row(mlp.Down)
			}
		}
		a.Norm = p.Columns(a.Norm, a.Head)
		a.loss = p.CrossEntropy(a.Config.Vocab).Loss
		for _, d := range a.inside {
			p.Inside(d, a.Config.Hidden)
		}
		for _, d := range a.outside {
			p.Outside(d)
		}
		err = a.divideExperts(mesh, p)
	})
	return cmp.Or(failed, err)
}

// divideExperts gives each rank its part of the experts; with tensor parallelism, of each of them its part of the hidden features.
func (a *attached) divideExperts(mesh *dist.Mesh, p *tp.Parallel) error {
	for i, l := range a.experts {
		ranks := moe.Ranks{Tokens: a.sum, Experts: mesh.Group("ep").With(dist.Name(fmt.Sprintf("experts of layer %d", i)))}
		if p != nil {
			ranks.Hidden = p.Group
			ranks.Gather, ranks.Scatter = p.Between(a.Blocks[i].Norm2)
		}
		if err := moe.Parallelize(ranks, l); err != nil {
			return err
		}
	}
	return nil
}

// divideSequences gives each rank its positions. Attention has all of them, of some heads.
func (a *attached) divideSequences(mesh *dist.Mesh) {
	u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: a.Config.HeadDim}
	for _, b := range a.Blocks {
		b.Attn.Spread, b.Attn.Join = u.ToHeads(), u.ToPositions()
	}
	a.part = u.Part
}

// shard cuts what each rank has left of the parameters over the ranks that have the same. A block is a unit, which is gathered when it is
// used. Its experts are another one, because fewer ranks have the same.
func (a *attached) shard(mesh *dist.Mesh, l layout, seed uint64) (err error) {
	c := fsdp.Config{Shard: mesh.Group("fsdp", "ep", "cp"), Stage: l.Stage, DType: tensor.Float64, Seed: seed}
	c.HoldGrads, c.CheckEvery = l.Hold, l.Check
	if l.DP > 1 {
		c.Replicate = mesh.Group("dp")
	}
	if l.Offload {
		c.Offload = tensor.NewCPU(1)
	}
	s := fsdp.New(c)
	s.Keep(a.Tok, a.Pos, a.Norm, a.Head)
	for _, b := range a.Blocks {
		m, ok := b.MLP.(*moe.Layer)
		if !ok {
			s.Unit(b)
			continue
		}
		s.Unit(b.Norm1, b.Attn, b.Norm2, m.Router)
		if m.Shared != nil {
			s.Unit(m.Shared)
		}
		s.Unit(m.Experts).Over(mesh.Group("fsdp", "cp"), c.Replicate)
	}
	if l.TP == 1 { // else ranks of tp have other parameters, too
		a.norm = s
	}
	a.params, err = s.Attach(a.Model)
	return err
}
