package pp_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

const (
	words, positions = 11, 5
	ignored          = -100
)

// program is what is trained, on one rank or on many.
type program struct {
	kind    gpt.Kind
	layers  int // 0: 4
	tied    bool
	drop    bool
	lora    bool
	labels  bool  // some do not count
	rows    []int // of each microbatch; nil: 4 of 4
	frozen  []string
	pause   bool // frozen in steps 3 to 5 alone
	scaled  bool // losses
	uneven  bool // every third step has a row more in each microbatch
	alone   bool // wrongly, each microbatch says that it is the whole batch
	plain   bool // rows that do not say which ranks have the others
	experts bool // in place of the MLP of layer 1
	same    bool // tokens and labels in all microbatches
}

// layout is how it is divided.
type layout struct {
	mesh     string // without the axes that have one rank
	schedule string
	parts    []int // layers of each stage; nil: as many on each, more on the first ones
	stage    int   // of fsdp; 0: ddp
	once     bool  // fsdp gathers and reduces
	sequence bool
	again    bool // stages are computed again in backward
	fused    bool // the loss makes no logits

	seed   uint64             // of what is not loaded; 0: 3
	start  func(j *job) error // before all steps
	before func(j *job) error // before each step
	change func(j *job)       // before Attach
	config func(c *pp.Config) // before New
	after  func(j *job) error // after each step
	norm   func(j *job) optim.Norm
}

// job is a rank's training.
type job struct {
	program
	layout
	rank    *dist.Rank
	mesh    *dist.Mesh
	model   *gpt.Model
	stages  map[int]*gpt.Stage
	inside  []*nn.Dropout
	outside []*nn.Dropout
	att     *parallel.Attached
	opt     *optim.Optimizer
	scaler  *optim.Scaler
	tape    *tensor.Tape // of the pipeline
	pipe    *pp.Pipeline
	count   float64
	state   *disttest.State
}

func (p program) training(l layout) disttest.Training {
	if p.layers == 0 {
		p.layers = 4
	}
	if p.rows == nil {
		p.rows = []int{4, 4, 4, 4}
	}
	l.seed = cmp.Or(l.seed, 3)
	const about = "%+v %s %v stage %d once %v sequence %v again %v"
	c := disttest.Training{Batch: len(p.rows), Micro: len(p.rows), Seed: l.seed, Name: fmt.Sprintf(about,
		p, l.schedule, l.parts, l.stage, l.once, l.sequence, l.again)}
	if l.mesh != "" {
		c.Mesh = whole(l.mesh)
	}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		j := &job{program: p, layout: l, rank: r, mesh: mesh}
		a, err := j.attach()
		a.Start, a.Before = j.hook(l.start), j.hook(l.before)
		return a, err
	}
	return c
}

func (j *job) hook(fn func(j *job) error) func(s *disttest.State) error {
	if fn == nil {
		return nil
	}
	return func(s *disttest.State) error {
		j.state = s
		return fn(j)
	}
}

// whole adds the axes that a mesh lacks.
func whole(mesh string) string {
	for _, axis := range []string{"pp", "dp", "fsdp", "ep", "ring", "cp", "kv", "same"} {
		if !strings.Contains(","+mesh, ","+axis+"=") {
			mesh += "," + axis + "=1"
		}
	}
	return mesh
}

func (j *job) newModel() (err error) {
	c := gpt.Config{Kind: j.kind, Vocab: words, Positions: positions, Width: 8, Layers: j.layers, Heads: 4, Hidden: 9, Tied: j.tied}
	switch j.kind {
	case gpt.SmolLM3:
		c.NoRopeEvery = 2
	case gpt.Gemma2:
		c.Window, c.FullEvery, c.QueryScalar, c.AttnSoftCap, c.LogitSoftCap = 3, 2, 3, 0.5, 2
	case gpt.Gemma3:
		c.Window, c.FullEvery, c.Base, c.LocalBase = 3, 3, 500, 10
	case gpt.Mixtral, gpt.Qwen3MoE:
		c.Hidden, c.Experts, c.Top, c.Balance = 6, 4, 2, 0.1
	}
	j.model, err = gpt.New(c)
	if err != nil {
		return err
	}
	if j.experts {
		j.model.Blocks[1].MLP = moe.NewLayer(moe.Config{Features: 8, Hidden: 6, Experts: 4, Router: router.Config{Top: 2}, Balance: 0.1})
	}
	if j.drop {
		for _, b := range j.model.Blocks {
			out, in := nn.NewDropout(0.2), nn.NewDropout(0.3)
			b.Norm2 = nn.Sequential{b.Norm2, out}
			switch mlp := b.MLP.(type) {
			case *nn.MLP:
				mlp.Act = nn.Sequential{mlp.Act, in}
			case *nn.GatedMLP:
				mlp.Act = nn.Sequential{mlp.Act, in}
			}
			j.inside, j.outside = append(j.inside, in), append(j.outside, out)
		}
	}
	if j.lora {
		nn.LoRA(j.model, nn.LoRAConfig{Rank: 2, Alpha: 3, Targets: []string{"blocks.*", "head"}})
	}
	if !j.pause {
		j.freeze(nn.ParamsOf(j.model), true)
	}
	return nil
}

func (j *job) freeze(params nn.Params, on bool) {
	for _, x := range params {
		if slices.ContainsFunc(j.frozen, func(prefix string) bool { return strings.HasPrefix(x.Name(), prefix) }) {
			if x.Unfreeze(); on {
				x.Freeze()
			}
		}
	}
}

func (j *job) optimizer(params nn.Params, n optim.Norm) *optim.Optimizer {
	if j.scaled {
		j.scaler = &optim.Scaler{Scale: 1024}
	}
	return optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.4, Norm: n, Scaler: j.scaler})
}

func (j *job) attach() (a disttest.Attached, err error) {
	if err := j.newModel(); err != nil {
		return a, err
	}
	if j.mesh == nil {
		j.att = &parallel.Attached{Data: j.rank.World, Sum: j.rank.World,
			Loss: nn.CrossEntropy,
			Part: func(x tensor.Tensor, _ ...tensor.Tensor) tensor.Tensor { return x }}
		a.Params = nn.Init(j.model, j.rank.Device, tensor.Float64, j.seed)
		a.Own, a.Step = j.optimizer(a.Params, nil), j.plainStep
		j.opt = a.Own
		return a, nil
	}
	return j.attachStages()
}

func (j *job) ignore() (o ops.CrossEntropyOptions) {
	if j.labels {
		label := int64(ignored)
		o.Ignore, o.Count = &label, j.count
	}
	return o
}

// evenly divides layers over stages.
func evenly(layers, stages int) (parts []int) {
	for i := range stages {
		parts = append(parts, layers*(i+1)/stages-layers*i/stages)
	}
	return parts
}

func (j *job) attachStages() (a disttest.Attached, err error) {
	g := j.mesh.Group("pp").With(dist.Name("pp"))
	s := must(pp.ByName(cmp.Or(j.schedule, "1f1b"), g.Size(), 2, len(j.rows)))
	var mine []int
	for i, rank := range s.Ranks {
		if rank == g.Rank() {
			mine = append(mine, i)
		}
	}
	parts := j.parts
	if parts == nil {
		parts = evenly(j.layers, len(s.Ranks))
	}
	if j.stages, err = j.model.Stages(parts, mine...); err != nil {
		return a, err
	}
	if j.change != nil {
		j.change(j)
	}
	c := parallel.Config{Sequence: j.sequence, More: j.divideDropout,
		DDP: ddp.Config{DType: tensor.Float64, Seed: j.seed, BucketBytes: 500}}
	if j.stage > 0 {
		c.FSDP = &fsdp.Config{Stage: j.stage, DType: tensor.Float64, Seed: j.seed, OncePerStep: j.once}
	}
	if j.att, err = parallel.Attach(j.mesh, j.model, c); err != nil {
		return a, err
	}
	var norm optim.Norm = j.rank.World
	if j.norm != nil {
		norm = j.norm(j)
	}
	j.opt = j.optimizer(j.att.Params, norm)
	run := map[int]pp.Stage{}
	for i, stage := range j.stages {
		forward := stage.Forward
		if j.fused {
			forward = func(x nn.T, batch, time int) nn.T { return stage.Features(x, batch, time) }
		}
		run[i] = func(t *tensor.Tape, micro int, x nn.T) nn.T { return j.forward(t, micro, i, len(s.Ranks), forward, x) }
	}
	j.tape = tensor.NewTape(j.rank.Device, tensor.Seed(j.seed))
	cfg := pp.Config{Group: g, Schedule: s, Stages: run, Tape: j.tape, Params: j.att.Params, Optimizer: j.opt}
	if j.config != nil {
		j.config(&cfg)
	}
	if j.pipe, err = pp.New(cfg); err != nil {
		return a, err
	}
	a = disttest.Attached{Params: j.att.Params, Own: j.opt, Step: j.step, Data: j.att.Data,
		Sum: j.mesh.Group("pp", "dp", "fsdp", "ep", "ring", "cp")}
	a.End = func(*disttest.State) error {
		j.pipe.Close()
		j.tape.Close()
		return nil
	}
	return a, nil
}

func (j *job) divideDropout(p *tp.Parallel) {
	for _, d := range j.inside {
		p.Inside(d, j.model.Config.Hidden)
	}
	for _, d := range j.outside {
		p.Outside(d)
	}
}

// forward is a stage. Only the first one needs tokens, and only the last one labels.
func (j *job) forward(t *tensor.Tape, micro, stage, stages int, run func(x nn.T, batch, time int) nn.T, x nn.T) nn.T {
	ids, next := j.batch(micro)
	if ids = j.att.Part(ids); stage == 0 {
		x = t.Input(ids)
	}
	fn := func(in ...nn.T) nn.T { return run(in[0], ids.Dim(0), ids.Dim(1)) }
	if j.again {
		x = t.Checkpoint(fn, x)
	} else {
		x = fn(x)
	}
	if stage < stages-1 {
		return x
	}
	if j.fused {
		return j.att.FeatureLoss(x, j.att.Part(next), j.ignore())
	}
	return j.att.Loss(x, j.att.Part(next), j.ignore())
}

// batch returns this rank's tokens of a microbatch, and those that follow them.
func (j *job) batch(micro int) (ids, next tensor.Tensor) {
	before, total, more := 0, 0, 0
	if j.uneven && j.state.Step%3 == 0 {
		more = 1
	}
	for i, n := range j.rows {
		if total += n + more; i < micro {
			before += n + more
		}
	}
	if j.alone {
		before, total = 0, j.rows[micro]
	}
	lo, n := disttest.Part(j.rows[micro]+more, j.att.Data.Rank(), j.att.Data.Size())
	a, b := make([]int64, n*positions), make([]int64, n*positions)
	for i := range a {
		k := (100*j.state.Step+before+lo)*positions + i
		if j.same {
			k = lo*positions + i
		}
		a[i] = int64(k * k % 19 % words)
		if b[i] = (3*a[i] + int64(k%2)) % words; j.labels && k%3 == 0 {
			b[i] = ignored
		}
	}
	rows := j.att.Data.Rows(before+lo, total)
	if j.plain {
		rows.Over = 0
	}
	return tensor.FromSlice(a, n, positions).WithRows(rows), tensor.FromSlice(b, n, positions).WithRows(rows)
}

// countLabels adds up the labels that count, over all microbatches and ranks.
func (j *job) countLabels() error {
	n := []float64{0}
	for micro := range j.rows {
		_, next := j.batch(micro)
		for _, v := range tensor.Data[int64](next) {
			if v != ignored {
				n[0]++
			}
		}
	}
	if err := j.att.Data.SumFloats(n); err != nil {
		return err
	}
	j.count = n[0]
	return nil
}

func (j *job) begin(s *disttest.State) {
	j.state = s
	if j.pause && (s.Step == 3 || s.Step == 6) {
		j.freeze(nn.ParamsOf(j.model), s.Step == 3)
		if j.pipe != nil {
			j.pipe.Close()
			p, err := pp.New(j.pipe.Config)
			disttest.OK(err)
			j.pipe = p
		}
	}
}

// plainStep is the ordinary loop.
func (j *job) plainStep(s *disttest.State) ([]float64, error) {
	j.begin(s)
	disttest.OK(j.countLabels())
	sum := 0.0
	for micro := range j.rows {
		loss := j.forward(s.Tape, micro, 0, 1, func(x nn.T, _, _ int) nn.T { return j.model.Forward(x) }, nn.T{})
		sum += loss.Item()
		var opts []tensor.BackwardOption
		if micro < len(j.rows)-1 {
			opts = append(opts, tensor.More())
		}
		if j.scaler != nil {
			opts = append(opts, tensor.Scale(j.scaler.Scale))
		}
		s.Tape.Backward(loss, opts...)
		s.Tape.Reset()
	}
	return []float64{sum}, j.opt.Step()
}

func (j *job) step(s *disttest.State) ([]float64, error) {
	j.begin(s)
	disttest.OK(j.countLabels())
	if j.uneven {
		j.pipe.SetRows(tensor.Rows{}, s.Step%3)
	}
	loss, err := j.pipe.Step()
	if err == nil {
		err = j.opt.Step()
	}
	if err == nil && j.after != nil {
		err = j.after(j)
	}
	return []float64{loss}, err
}

// requireParity trains on one rank and in layouts, and compares.
func requireParity(t *testing.T, p program, layouts ...layout) {
	t.Helper()
	want := p.training(layout{again: layouts[0].again}).Run(t)
	for _, l := range layouts {
		disttest.RequireEqual(t, want, p.training(l).Run(t), 1e-10)
	}
}
