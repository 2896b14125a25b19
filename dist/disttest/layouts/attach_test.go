package layouts

import (
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// attached is a rank's model, ready to be trained.
type attached struct {
	*model
	*parallel.Attached
	norm optim.Norm
}

// attachAlone is the model on one rank.
func (p program) attachAlone(r *dist.Rank) (a attached, err error) {
	if a.model, err = p.model(); err != nil {
		return a, err
	}
	a.Attached = &parallel.Attached{Data: r.World, Sum: r.World, Part: func(x tensor.Tensor) tensor.Tensor { return x },
		Loss: func(logits, labels nn.T) nn.T { return nn.CrossEntropy(logits, labels) }}
	if err = moe.Parallelize(moe.Ranks{Tokens: r.World}, a.experts...); err == nil { // else microbatches would look like parts of ranks
		a.Params = nn.Init(a.Model, r.Device, tensor.Float64, initSeed)
	}
	return a, err
}

// attach divides the model. The optimizer is made of what it returns.
func (p program) attach(r *dist.Rank, mesh *dist.Mesh, l layout, seed uint64) (a attached, err error) {
	if a.model, err = p.model(); err != nil {
		return a, err
	}
	a.Recompute = l.Again
	c := parallel.Config{Sequence: l.Sequence, Chunks: l.Chunks, More: a.divideDropout,
		DDP: ddp.Config{DType: tensor.Float64, Seed: seed, BucketBytes: l.Bucket, CheckEvery: l.Check}}
	if l.Stage > 0 {
		c.FSDP = &fsdp.Config{Stage: l.Stage, DType: tensor.Float64, Seed: seed, OncePerStep: l.Once, CheckEvery: l.Check}
		if l.Offload {
			c.FSDP.Offload = tensor.NewCPU(1)
		}
	}
	if a.Attached, err = parallel.Attach(mesh, a.Model, c); err != nil {
		return a, err
	}
	switch {
	case l.TP > 1 || l.EP > 1 && l.Stage == 0: // ranks have other parameters
		a.norm = r.World
	case l.Stage > 0:
		a.norm = a.Shards
	}
	return a, nil
}

func (a *attached) divideDropout(p *tp.Parallel) {
	for _, d := range a.inside {
		p.Inside(d, a.Config.Hidden)
	}
	for _, d := range a.outside {
		p.Outside(d)
	}
}
