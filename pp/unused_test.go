package pp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// sparse is a chain of layers, some of which a microbatch leaves out.
type sparse struct {
	Layers []*nn.Linear // one for each stage; nil: it is on another rank, or the stage has none

	uses func(step, stage, micro int) bool
	data *dist.Group // nil: one rank
	step int
}

const sparseWidth, sparseMicros = 5, 4

// forward computes stage i of so many.
func (m *sparse) forward(t *tensor.Tape, i, stages, micro int, x nn.T) nn.T {
	if i == 0 {
		x = t.Input(m.rows(micro))
	}
	if x = x.Tanh(); m.Layers[i] != nil && m.uses(m.step, i, micro) {
		x = x.Add(m.Layers[i].Forward(x))
	}
	if i < stages-1 {
		return x
	}
	return tensor.GlobalMean(x.Square())
}

// rows returns this rank's rows of a microbatch: of 3 to 19 rows in the step, and unevenly many in microbatches.
func (m *sparse) rows(micro int) tensor.Tensor {
	total, at := m.total(), func(k int) int { return m.total() * k * k / sparseMicros / sparseMicros }
	lo, n := at(micro), at(micro+1)-at(micro)
	rows := tensor.Rows{First: lo, Stride: 1, Total: total}
	if m.data != nil {
		first, part := disttest.Part(n, m.data.Rank(), m.data.Size())
		lo, n = lo+first, part
		rows = m.data.Rows(lo, total)
	}
	x := make([]float64, n*sparseWidth)
	for i := range x {
		k := (100*m.step+lo)*sparseWidth + i
		x[i] = float64(k*k%23)/11 - 1
	}
	return tensor.FromSlice(x, n, sparseWidth).WithRows(rows)
}

func (m *sparse) total() int { return 3 + 7*m.step%17 }

// sparseLayout is how a sparse is divided.
type sparseLayout struct {
	mesh, schedule string
	stages         int
	fsdp           int  // stage; 0: ddp
	allow          bool // parameters that no microbatch of a step uses
}

// training trains a sparse whose stages have layers, or not.
func (l sparseLayout) training(has func(stage int) bool, uses func(step, stage, micro int) bool) disttest.Training {
	c := disttest.Training{Micro: sparseMicros, Batch: sparseMicros, Mesh: l.mesh, Name: fmt.Sprintf("%+v", l)}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (a disttest.Attached, err error) {
		m := &sparse{Layers: make([]*nn.Linear, l.stages), uses: uses}
		var s *pp.Schedule
		if mesh != nil {
			s, m.data = disttest.Must(pp.ByName(l.schedule, mesh.Group("pp").Size(), 2, sparseMicros)), mesh.Group("dp")
		}
		for i := range m.Layers {
			if has(i) && (s == nil || s.Ranks[i] == mesh.Group("pp").Rank()) {
				m.Layers[i] = nn.NewLinear(sparseWidth, sparseWidth)
			}
		}
		conf := optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.2}
		if s == nil {
			a.Params = nn.Init(m, r.Device, tensor.Float64, 1)
			a.Own, a.Step = optim.NewAdamW(a.Params, conf), m.plainStep
			return a, nil
		}
		if a.Params, err = l.attach(m); err != nil {
			return a, err
		}
		conf.Norm = r.World
		a.Own, a.Data, a.Sum = optim.NewAdamW(a.Params, conf), m.data, r.World
		return a, m.pipeline(s, mesh.Group("pp"), &a)
	}
	return c
}

func (l sparseLayout) attach(m *sparse) (nn.Params, error) {
	if len(nn.ParamsOf(m)) == 0 {
		return nil, nil
	}
	if l.fsdp == 0 {
		return ddp.Attach(m.data, m, ddp.Config{DType: tensor.Float64, Seed: 1, BucketBytes: 200, AllowUnused: l.allow})
	}
	s := fsdp.New(fsdp.Config{Shard: m.data, Stage: l.fsdp, DType: tensor.Float64, Seed: 1, OncePerStep: l.fsdp == 3})
	for _, layer := range m.Layers {
		if layer != nil {
			s.Unit(layer)
		}
	}
	return s.Attach(m)
}

// pipeline makes a step that of a pipeline.
func (m *sparse) pipeline(s *pp.Schedule, g *dist.Group, a *disttest.Attached) error {
	stages := map[int]pp.Stage{}
	for i, rank := range s.Ranks {
		if rank == g.Rank() {
			stages[i] = func(t *tensor.Tape, micro int, x nn.T) nn.T { return m.forward(t, i, len(s.Ranks), micro, x) }
		}
	}
	c := pp.Config{Group: g, Schedule: s, Stages: stages, Tape: tensor.NewTape(g.Device(), tensor.Seed(3)), Params: a.Params,
		Optimizer: a.Own, CheckEvery: 2}
	p, err := pp.New(c)
	if err != nil {
		return err
	}
	c.Schedule, c.Tape = s.Forward(), tensor.NewTape(g.Device())
	eval, err := pp.New(c)
	a.Step = func(st *disttest.State) ([]float64, error) {
		m.step = st.Step
		p.SetRows(tensor.Rows{}, m.step) // each step has other rows
		eval.SetRows(tensor.Rows{}, m.step)
		before, err := eval.Step()
		disttest.OK(err)
		loss, err := p.Step()
		disttest.OK(err)
		if math.Abs(before-loss) > 1e-12 {
			return nil, fmt.Errorf("the loss is %v, and without backward passes %v", loss, before)
		}
		return []float64{loss}, a.Own.Step()
	}
	return err
}

// plainStep is the ordinary loop.
func (m *sparse) plainStep(st *disttest.State) ([]float64, error) {
	m.step = st.Step
	sum := 0.0
	for micro := range sparseMicros {
		var x nn.T
		for i := range m.Layers {
			x = m.forward(st.Tape, i, len(m.Layers), micro, x)
		}
		sum += x.Item()
		var opts []tensor.BackwardOption
		if micro < sparseMicros-1 {
			opts = append(opts, tensor.More())
		}
		st.Tape.Backward(x, opts...)
		st.Tape.Reset()
	}
	return []float64{sum}, st.Optimizer.Step()
}

// In some microbatches, or in all, stages use no parameter: also in the last backward pass of a rank, which has to tell the owner of
// gradients that the step is over, and in the first one, whose rows count. With a stage on each rank, some ranks have no parameters at all.
func TestUnusedStages(t *testing.T) {
	layouts := []sparseLayout{
		{"pp=2,dp=1", "interleaved", 4, 0, false}, {"pp=2,dp=2", "interleaved", 4, 0, false}, {"pp=2,dp=3", "v-min", 4, 0, false},
		{"pp=2,dp=2", "dualpipev", 4, 3, false}, {"pp=2,dp=2", "zbv", 4, 2, false}, {"pp=4,dp=1", "1f1b", 4, 0, false},
		{"pp=4,dp=2", "zb-h1", 4, 0, false}, {"pp=4,dp=2", "gpipe", 4, 1, false}, {"pp=4,dp=2", "1f1b", 4, 3, false},
	}
	all := func(int, int, int) bool { return true }
	for name, c := range map[string]struct {
		has  func(stage int) bool
		uses func(step, stage, micro int) bool
	}{
		"stage 1 has no parameters":    {func(stage int) bool { return stage != 1 }, all},
		"stages 0 and 1 have none":     {func(stage int) bool { return stage > 1 }, all},
		"the last microbatch uses one": {nil, func(_, stage, micro int) bool { return micro < sparseMicros-1 || stage == 2 }},
		"the first one uses one":       {nil, func(_, stage, micro int) bool { return micro > 0 || stage == 1 }},
		"no microbatch of some steps":  {nil, func(step, stage, _ int) bool { return stage != 1 || step%3 < 2 }},
		"each step others":             {nil, func(step, stage, micro int) bool { return (step+stage+micro)%3 == 0 }},
	} {
		for _, l := range layouts {
			l.allow = strings.HasPrefix(name, "no microbatch")
			has := c.has
			if has == nil {
				has = func(int) bool { return true }
			}
			t.Run(name+" "+l.mesh+" "+l.schedule, func(t *testing.T) {
				want := sparseLayout{stages: l.stages}.training(has, c.uses).Run(t)
				disttest.RequireEqual(t, want, l.training(has, c.uses).Run(t), 1e-10)
			})
		}
	}
}

// A rank without parameters takes part in checkpoints, and a training goes on from one as if it had not ended.
func TestCheckpointOfRankWithoutParameters(t *testing.T) {
	dir := t.TempDir()
	l := sparseLayout{"pp=3,dp=2", "1f1b", 3, 0, false}
	has, uses := func(stage int) bool { return stage != 1 }, func(int, int, int) bool { return true }
	c := l.training(has, uses)
	attach, resumed := c.Attach, false
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		a, err := attach(r, mesh)
		a.Before = func(s *disttest.State) error {
			st := ckpt.State{Step: s.Step, Params: a.Params, Optimizer: a.Own}
			if s.Step != 5 {
				return nil
			}
			if !resumed {
				save := ckpt.NewSaver(r.World, dir, ckpt.Config{})
				return errors.Join(save.Save(context.Background(), st), save.Close())
			}
			for _, p := range a.Params {
				clear(tensor.Data[float64](p.Local))
			}
			for _, x := range a.Own.State().Tensors {
				clear(tensor.Data[float64](x.Tensor))
			}
			_, err := ckpt.Load(context.Background(), r.World, stepDir(dir, 5), &st, ckpt.LoadConfig{Strategy: ckpt.Owned})
			return err
		}
		return a, err
	}
	want := c.Run(t)
	resumed = true
	disttest.RequireEqual(t, want, c.Run(t), 0)
}
