package parallel

import (
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Pipeline computes a model whose layers are stages on several ranks.
type Pipeline struct {
	a           *Attached
	group       *dist.Group
	schedule    *pp.Schedule
	stages      map[int]*gpt.Stage // of this rank
	train, eval *pp.Pipeline
	batch       data.Batch // of which microbatches are cut
	options     []ops.CrossEntropyOptions
}

// NewPipeline divides m into the stages of s, of equally many layers (the first ones may have one more), and leaves m those of this rank of
// g. Call Attach next, then Start.
func NewPipeline(g *dist.Group, s *pp.Schedule, m *gpt.Model) (p *Pipeline, err error) {
	p = &Pipeline{group: g.With(dist.Name("pipeline")), schedule: s}
	var mine []int
	for i, rank := range s.Ranks {
		if rank == g.Rank() {
			mine = append(mine, i)
		}
	}
	p.stages, err = m.Stages(layout.Shares(make([]int, len(s.Ranks)), m.Config.Layers), mine...)
	return p, err
}

// Start completes p with what Attach has returned, and adds the group of p to it. The tapes are for Train and Loss. It is collective.
func (p *Pipeline) Start(a *Attached, opt *optim.Optimizer, train, eval *tensor.Tape) (err error) {
	p.a, a.Groups = a, append(a.Groups, p.group)
	c := pp.Config{Group: p.group, Schedule: p.schedule, Stages: map[int]pp.Stage{}, Tape: train, Params: a.Params, Optimizer: opt}
	for i := range p.stages {
		c.Stages[i] = p.stage(i)
	}
	if p.train, err = pp.New(c); err != nil {
		return err
	}
	c.Schedule, c.Tape, c.Optimizer = p.schedule.Forward(), eval, nil
	p.eval, err = pp.New(c)
	return err
}

// stage computes a stage of a microbatch of the batch.
func (p *Pipeline) stage(i int) pp.Stage {
	return func(tape *tensor.Tape, micro int, x nn.T) nn.T {
		b := &p.batch
		lo, hi := layout.Share(b.Rows, micro, p.schedule.Micros)
		ids, docs := gpt.Documents(b.X.Slice(0, lo, hi))
		if ids = p.a.Part(ids, docs...); i == 0 {
			x = tape.Input(ids)
		}
		x = p.stages[i].Features(x, ids.Dim(0), ids.Dim(1), docs...)
		if i == len(p.schedule.Ranks)-1 {
			x = p.a.FeatureLoss(x, p.a.Part(b.Y.Slice(0, lo, hi), docs...), p.options...)
		}
		return x
	}
}

// Train computes the gradients of a batch, which is in host memory, and returns what this rank adds to its loss. Options are those of the
// loss of the whole batch: Count is that of all microbatches and ranks.
func (p *Pipeline) Train(b data.Batch, options ...ops.CrossEntropyOptions) (loss float64, err error) {
	return p.pass(p.train, b, options)
}

// Loss returns what this rank adds to the loss of a batch.
func (p *Pipeline) Loss(b data.Batch, options ...ops.CrossEntropyOptions) (loss float64, err error) {
	return p.pass(p.eval, b, options)
}

func (p *Pipeline) pass(with *pp.Pipeline, b data.Batch, options []ops.CrossEntropyOptions) (float64, error) {
	p.batch, p.options = b, options
	with.SetRows(tensor.Rows{First: b.First, Total: b.Global}, b.Rows) // those of the first and the last batch are others
	loss, err := with.Step()
	if p.a.Layers.Rank() > 0 { // all ranks of Layers have it
		loss = 0
	}
	return loss, err
}
