package layouts

import (
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

// attached is a rank's model, ready to be trained.
type attached struct {
	*model
	*parallel.Attached
	norm   optim.Norm
	stages map[int]*gpt.Stage
}

// attachAlone is the model on one rank.
func (p program) attachAlone(r *dist.Rank) (a attached, err error) {
	if a.model, err = p.model(); err != nil {
		return a, err
	}
	a.Attached = &parallel.Attached{Data: r.World, Sum: r.World, Part: func(x tensor.Tensor, _ ...tensor.Tensor) tensor.Tensor { return x },
		Loss: nn.CrossEntropy}
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
	if l.PP > 1 {
		if err = a.keepStages(p, l, mesh.Group("pp").Rank()); err != nil {
			return a, err
		}
	}
	c := parallel.Config{Sequence: l.Sequence, Chunks: l.Chunks, More: a.divideDropout,
		DDP: ddp.Config{DType: tensor.Float64, Seed: seed, BucketBytes: l.Bucket, CheckEvery: l.Check}}
	if l.Stage > 0 {
		c.FSDP = &fsdp.Config{Stage: l.Stage, DType: tensor.Float64, Seed: seed, OncePerStep: l.Once, CheckEvery: l.Check}
		if l.Offload {
			c.FSDP.Offload = cpu.New(1)
		}
	}
	if a.Attached, err = parallel.Attach(mesh, a.Model, c); err != nil {
		return a, err
	}
	switch {
	case l.PP > 1 || l.TP > 1 || l.EP > 1 && l.Stage == 0: // ranks have other parameters
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

// keepStages leaves the model those of this rank.
func (a *attached) keepStages(p program, l layout, rank int) error {
	s, err := l.schedule(p)
	if err != nil {
		return err
	}
	var mine []int
	for i, r := range s.Ranks {
		if r == rank {
			mine = append(mine, i)
		}
	}
	if a.stages, err = a.Stages(l.Parts, mine...); err != nil {
		return err
	}
	a.experts = nil
	for _, b := range a.Blocks {
		if b == nil {
			continue
		}
		if e, ok := b.MLP.(*moe.Layer); ok {
			a.experts = append(a.experts, e)
		}
	}
	return nil
}

// loss is this rank's part of the mean over the labels of a step that count.
func (a *attached) loss(p program, step int, logits, labels nn.T) nn.T {
	o := ops.CrossEntropyOptions{Ignore: new(int64), Count: float64(p.labels(step))}
	*o.Ignore = ignored
	if !p.Ignored {
		return a.Loss(logits, labels)
	}
	return a.Loss(logits, labels, o)
}

// pipeline makes the pipeline of a layout.
func (a *attached) pipeline(p program, l layout, mesh *dist.Mesh, s *disttest.State) (*pp.Pipeline, error) {
	c := pp.Config{Group: mesh.Group("pp"), Stages: map[int]pp.Stage{}, Tape: s.Tape, Params: s.Params, Optimizer: s.Optimizer,
		CheckEvery: l.Check}
	var err error
	if c.Schedule, err = l.schedule(p); err != nil {
		return nil, err
	}
	for i, stage := range a.stages {
		c.Stages[i] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
			ids, next := p.tokens(s.Rank.Device, s.Batch(t, micro))
			if ids = a.Part(ids); i == 0 {
				x = t.Input(ids)
			}
			if x = stage.Forward(x, ids.Dim(0), ids.Dim(1)); i < len(l.Parts)-1 {
				return x
			}
			return a.loss(p, s.Step, x, a.Part(next))
		}
	}
	return pp.New(c)
}
