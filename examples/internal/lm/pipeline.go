package lm

import (
	"flag"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	division "github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// pipeline is what layouts with -pp have besides.
type pipeline struct {
	micro    int // microbatches of a step
	schedule string
	chunks   int // stages of a rank in a schedule that is interleaved
}

func (o *Options) pipelineFlags(fs *flag.FlagSet) {
	fs.IntVar(&o.pp, "pp", 1, "ranks that have some layers each, as stages of a pipeline; then no text is written at the end")
	fs.IntVar(&o.micro, "micro", 8, "with -pp: microbatches of a step")
	fs.StringVar(&o.schedule, "schedule", "1f1b", "with -pp: "+strings.Join(pp.Names(), ", "))
	fs.IntVar(&o.chunks, "chunks", 2, "with -schedule interleaved: stages of each rank")
}

// checkPipeline returns an error for impossible options.
func (o *Options) checkPipeline() error {
	for _, name := range []string{"micro", "schedule", "chunks"} {
		if o.pp <= 1 && o.given[name] {
			return train.Usagef("-%s needs -pp", name)
		}
	}
	switch {
	case o.pp <= 1:
		return nil
	case o.micro < 1 || o.batch%o.micro != 0:
		return train.Usagef("-micro %d: microbatches of -batch %d sequences must be at least 1, and divide them", o.micro, o.batch)
	case o.lora > 0:
		return train.Usagef("-lora trains on whole models, without -pp")
	case o.given["sample"] && o.sample > 0:
		return train.Usagef("-sample %d: stages write no text", o.sample)
	case o.schedule == "forward":
		return train.Usagef("-schedule forward trains nothing")
	}
	_, err := pp.ByName(o.schedule, o.pp, o.chunks, o.micro)
	if err != nil {
		return train.Usagef("-schedule: %v", err)
	}
	return nil
}

// stages are those of a rank, and the pipelines that run them.
type stages struct {
	group       *dist.Group
	schedule    *pp.Schedule
	mine        map[int]*gpt.Stage
	train, eval *pp.Pipeline
	batch       data.Batch // that runs
}

// stages leaves m those of this rank. Without -pp there are none.
func (o *Options) stages(mesh *dist.Mesh, m *gpt.Model) (*stages, error) {
	if o.pp <= 1 {
		return nil, nil
	}
	s, err := pp.ByName(o.schedule, o.pp, o.chunks, o.micro)
	if err != nil {
		return nil, err
	}
	p := &stages{group: mesh.Group("pp").With(dist.Name("pipeline")), schedule: s}
	var mine []int
	for i, rank := range s.Ranks {
		if rank == p.group.Rank() {
			mine = append(mine, i)
		}
	}
	if p.mine, err = m.Stages(division.Shares(make([]int, len(s.Ranks)), m.Config.Layers), mine...); err != nil {
		return nil, train.Usagef("-pp %d -schedule %s: %v", o.pp, o.schedule, err)
	}
	return p, nil
}

// startStages makes the pipelines, one to train, and one with its forward passes alone.
func (t *trainer) startStages() (err error) {
	p, run := t.stages, map[int]pp.Stage{}
	for i := range p.mine {
		run[i] = t.stage(i)
	}
	c := pp.Config{Group: p.group, Schedule: p.schedule, Stages: run, Tape: t.tape, Params: t.Params, Optimizer: t.opt}
	if p.train, err = pp.New(c); err != nil {
		return err
	}
	forward := *p.schedule
	forward.Actions = nil
	for _, list := range p.schedule.Actions {
		list = slices.DeleteFunc(slices.Clone(list), func(a pp.Action) bool { return a.Kind != pp.F })
		forward.Actions = append(forward.Actions, list)
	}
	c.Schedule, c.Tape, c.Optimizer = &forward, t.eval, nil
	p.eval, err = pp.New(c)
	return err
}

// stage computes a stage of a microbatch of the batch.
func (t *trainer) stage(i int) pp.Stage {
	return func(tape *tensor.Tape, micro int, x nn.T) nn.T {
		b := &t.stages.batch
		lo, hi := division.Share(b.Rows, micro, t.o.micro)
		ids := t.Part(b.X.Slice(0, lo, hi))
		if i == 0 {
			x = tape.Input(ids)
		}
		x = t.stages.mine[i].Forward(x, ids.Dim(0), ids.Dim(1))
		if i == len(t.stages.schedule.Ranks)-1 {
			x = t.Loss(x, t.Part(b.Y.Slice(0, lo, hi)))
		}
		return x
	}
}

// pass takes a batch through a pipeline. It returns this rank's part of the loss.
func (t *trainer) pass(p *pp.Pipeline, b data.Batch) (float64, error) {
	t.stages.batch = b
	p.SetRows(tensor.Rows{First: b.First, Total: b.Global}, b.Rows) // those of the first and the last batch are others
	loss, err := p.Step()
	if t.Layers.Rank() > 0 { // it is that of ranks with the same rows
		loss = 0
	}
	return loss, err
}
