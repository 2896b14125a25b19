package autograd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const ppWords, ppWidth, ppHidden, ppBlocks = 11, 6, 8, 4

// pipeline is a model that is cut into stages. Tok is the embedding of the first stage and the output layer of the last one. Each
// microbatch has a tape, on shared memory. Tensors are sent to other stages together with their types.
type pipeline struct {
	Tok    *tensor.Param // nil on stages between them
	Blocks []*ppBlock    // a nil block is on another stage
	Norm   *nn.LayerNorm // on the last stage

	plan    ppPlan
	pp      *dist.Group
	tied    *dist.Group // the two stages that have Tok, or nil
	state   *disttest.State
	tapes   []*tensor.Tape
	in, out []nn.T
	works   []dist.Work
	ends    func(x nn.T) nn.T                  // changes the output of a stage before it is sent
	got     func(x nn.T, ty tensor.Types) nn.T // makes the input of a stage from what comes, and its types
}

// ppPlan is how stages work.
type ppPlan struct {
	micro    int // microbatches of a step
	schedule func(stage, stages, micro int, deferred bool) []action
	deferred bool
	gathered bool // fsdp gathers each unit when it is used, also with deferred weight gradients
}

type ppBlock struct {
	Norm     *nn.LayerNorm
	Up, Down *nn.Linear
	Drop     *nn.Dropout
}

func newPipeline(plan ppPlan) *pipeline {
	m := &pipeline{Tok: tensor.NewParam(tensor.NormalInit(0, 1), ppWords, ppWidth), Norm: nn.NewLayerNorm(ppWidth), plan: plan,
		in: make([]nn.T, plan.micro), out: make([]nn.T, plan.micro), ends: func(x nn.T) nn.T { return x }, got: nn.T.WithTypes}
	for range ppBlocks {
		m.Blocks = append(m.Blocks, &ppBlock{nn.NewLayerNorm(ppWidth), nn.NewLinear(ppWidth, ppHidden), nn.NewLinear(ppHidden, ppWidth),
			nn.NewDropout(0.2)})
	}
	return m
}

func (m *pipeline) first() bool { return m.pp.Rank() == 0 }
func (m *pipeline) last() bool  { return m.pp.Rank() == m.pp.Size()-1 }

// cut keeps this stage, and of it this rank's part of the hidden features.
func (m *pipeline) cut(g *ranks) {
	tp := g.Group("tp")
	m.pp = g.Group("pp")
	for i, b := range m.Blocks {
		if i*m.pp.Size()/ppBlocks != m.pp.Rank() {
			m.Blocks[i] = nil
			continue
		}
		cutAlong(tp, b.Up.W, 0, 1, 1)
		cutAlong(tp, b.Up.B, 0, 1, 1)
		cutAlong(tp, b.Down.W, 1, 1, 1)
		b.Up.Pre, b.Down.Post = &autograd.Copy{Group: tp}, &autograd.Sum{Group: tp}
	}
	if !m.last() {
		m.Norm = nil
	}
	if !m.first() && !m.last() {
		m.Tok = nil
	}
	m.tie()
}

// tie makes the group of the two stages that have the tied weight. Its gradients are added up when all microbatches are done. If a stage
// waited for the other one in its Backward, it would never send what the other one waits for.
func (m *pipeline) tie() {
	color := -1
	if m.Tok != nil && m.pp.Size() > 1 {
		color = 0
	}
	var err error
	m.tied, err = m.pp.Split(color, 0)
	must(err)
}

func (m *pipeline) units(s *fsdp.Sharding, _ *ranks) {
	for _, b := range m.Blocks {
		if b != nil && m.plan.deferred && !m.plan.gathered { // Backward uses the unit twice: for activations, and later for weights
			s.Keep(b)
		} else if b != nil {
			s.Unit(b)
		}
	}
	if m.Tok != nil {
		s.Keep(m.Tok)
	}
	if m.Norm != nil {
		s.Unit(m.Norm)
	}
}

// words returns a rank's words of a microbatch, and the words that follow them.
func words(b disttest.Batch) (x, y nn.T) {
	in, next := make([]int64, b.N), make([]int64, b.N)
	for i := range in {
		at := b.First + i
		in[i], next[i] = int64(at*at*7%ppWords), int64(at*5%ppWords)
	}
	return tensor.FromSlice(in, b.N).WithRows(b.Rows), tensor.FromSlice(next, b.N)
}

// loss is that of the ordinary loop: one tape, one microbatch after another.
func (m *pipeline) loss(b disttest.Batch) nn.T {
	x, y := words(b)
	return m.head(m.layers(m.embed(b.Tape, x)), y)
}

func (m *pipeline) embed(t *tensor.Tape, ids nn.T) nn.T {
	return ops.Embedding(t.Use(m.Tok), t.Input(ids))
}

// layers applies the blocks of this stage.
func (m *pipeline) layers(x nn.T) nn.T {
	for _, b := range m.Blocks {
		if b != nil {
			x = x.Add(b.Drop.Forward(b.Down.Forward(b.Up.Forward(b.Norm.Forward(x)).GELU())))
		}
	}
	return x
}

func (m *pipeline) head(x, labels nn.T) nn.T {
	return nn.CrossEntropy(tensor.Linear(m.Norm.Forward(x), x.Tape().Use(m.Tok), nn.T{}), labels)
}

// action is what a stage does: the forward pass (F), the backward pass (B) or the weight gradients (W) of a microbatch.
type action struct {
	what  byte
	micro int
}

// oneF1B is the schedule of PipeDream-Flush (Narayanan et al. 2021). A stage keeps at most as many microbatches as there are stages from
// it to the end. With deferred weight gradients, stages before the last one compute them later, at times when they would otherwise wait.
func oneF1B(stage, stages, micro int, deferred bool) (list []action) {
	lag, done := stages-1-stage, 0
	warm := min(lag, micro)
	for k := range warm {
		list = append(list, action{'F', k})
	}
	for k := range micro {
		if k+warm < micro {
			list = append(list, action{'F', k + warm})
		}
		list = append(list, action{'B', k})
		if deferred && k >= lag {
			list = append(list, action{'W', done})
			done++
		}
	}
	for ; deferred && done < micro; done++ {
		list = append(list, action{'W', done})
	}
	return list
}

// gpipe does all forward passes first (Huang et al. 2019).
func gpipe(_, _, micro int, deferred bool) (list []action) {
	for k := range micro {
		list = append(list, action{'F', k})
	}
	for k := range micro {
		list = append(list, action{'B', k})
	}
	for k := 0; deferred && k < micro; k++ {
		list = append(list, action{'W', k})
	}
	return list
}

// send begins to send x, after its types.
func (m *pipeline) send(x nn.T, to, micro int) {
	ty := x.Types().Bytes()
	m.works = append(m.works, m.pp.Send(tensor.FromSlice(ty[:], 3), to, micro), m.pp.Send(x, to, micro))
}

// recv returns what another stage sends for this rank's rows: an activation, or its gradient.
func (m *pipeline) recv(from, micro int) nn.T {
	b := m.state.Batch(m.tapes[micro], micro)
	ty, x := make([]uint8, 3), tensor.New(m.pp.Device(), tensor.Float64, b.N, ppWidth)
	must(m.pp.Recv(tensor.FromSlice(ty, 3), from, micro).Wait())
	must(m.pp.Recv(x, from, micro).Wait())
	types, err := tensor.TypesFromBytes([3]byte(ty))
	must(err)
	return m.got(x.WithRows(b.Rows), types)
}

// forward returns the loss on the last stage, 0 on others.
func (m *pipeline) forward(k int) (loss float64) {
	t := m.tapes[k]
	t.SetStep(m.state.Step, k)
	ids, labels := words(m.state.Batch(t, k))
	var x nn.T
	if m.first() {
		x = m.embed(t, ids)
	} else {
		m.in[k] = t.Leaf(m.recv(m.pp.Rank()-1, k))
		x = m.in[k]
	}
	x = m.layers(x)
	if !m.last() {
		m.out[k] = m.ends(x)
		m.send(m.out[k], m.pp.Rank()+1, k)
		return 0
	}
	m.out[k] = m.head(x, labels)
	return m.out[k].Item()
}

func (m *pipeline) backward(k int) {
	t, opts := m.tapes[k], m.more(k)
	if m.plan.deferred {
		opts = []tensor.BackwardOption{tensor.DeferWeights()}
	}
	if m.last() {
		t.Backward(m.out[k], opts...)
	} else {
		t.BackwardFrom([]nn.T{m.out[k]}, []nn.T{m.recv(m.pp.Rank()+1, k)}, opts...)
	}
	if !m.first() {
		m.send(t.GradOf(m.in[k]), m.pp.Rank()-1, k)
	}
}

func (m *pipeline) more(k int) []tensor.BackwardOption {
	if k < m.plan.micro-1 {
		return []tensor.BackwardOption{tensor.More()}
	}
	return nil
}

// step runs the actions of a step, and returns the losses of its microbatches.
func (m *pipeline) step(s *disttest.State) (losses []float64, err error) {
	for m.state = s; len(m.tapes) < m.plan.micro; {
		m.tapes = append(m.tapes, tensor.NewTape(s.Rank.Device, tensor.Seed(3), tensor.ShareMemory(s.Tape)))
	}
	losses = make([]float64, m.plan.micro)
	for _, a := range m.plan.schedule(m.pp.Rank(), m.pp.Size(), m.plan.micro, m.plan.deferred) {
		switch a.what {
		case 'F':
			losses[a.micro] = m.forward(a.micro)
		case 'B':
			m.backward(a.micro)
		case 'W':
			m.tapes[a.micro].RunDeferred(m.more(a.micro)...)
		}
	}
	for _, w := range m.works {
		must(w.Wait())
	}
	m.works = m.works[:0]
	for _, t := range m.tapes {
		t.Reset()
	}
	if m.tied != nil {
		must(m.tied.AllReduce(m.Tok.Grad, dist.Sum).Wait())
	}
	s.Tape.SetStep(s.Step+1, 0)
	return losses, s.Optimizer.Step()
}

// ppJob trains with microbatches of five rows.
func ppJob(plan ppPlan) job {
	return job{training: training{Micro: plan.micro, Batch: 5 * plan.micro}, model: func() model { return newPipeline(plan) }}
}

// Stages of a pipeline train as one rank with one tape: with a tied embedding, dropout and clipping, with several schedules, with
// deferred weight gradients, under ddp and fsdp, and with divided layers in the stages. One stage has several tapes, too. In the short
// form, plans with several meshes have their first one.
func TestPipelineEqualsOneRank(t *testing.T) {
	for name, c := range map[string]struct {
		plan   ppPlan
		meshes string
	}{
		"one forward, one backward":          {ppPlan{5, oneF1B, false, false}, "dp=2,pp=2 pp=1 pp=2 pp=3 fsdp=2,pp=2 pp=2,tp=2"},
		"weights put off":                    {ppPlan{5, oneF1B, true, false}, "fsdp=2,pp=3 pp=2 pp=3 dp=2,pp=2 fsdp=2,pp=2,tp=2"},
		"two microbatches":                   {ppPlan{2, oneF1B, false, false}, "pp=3"},
		"all forward first":                  {ppPlan{5, gpipe, false, false}, "pp=3"},
		"all forward first, weights at last": {ppPlan{5, gpipe, true, false}, "pp=2"},
	} {
		if !strings.Contains(c.meshes, " ") && !reliability.Long(t) {
			continue
		}
		t.Run(name, func(t *testing.T) { requireOneRank(t, ppJob(c.plan), turns(t, 0, strings.Fields(c.meshes)...)...) })
	}
}

func TestLongPipelineEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestPipelineEqualsOneRank) }

// If a stage gets an input that does not fit its layers, or a gradient that does not fit its outputs, the error is the same as on one
// tape.
func TestWrongStagesAreRefused(t *testing.T) {
	part := func(m *pipeline, g *ranks) { // a part of the features, as if the sum over tp was forgotten
		m.ends = func(x nn.T) nn.T {
			half := tensor.FromSlice([]float64{0.5}, 1)
			half = half.WithTypes(half.Types().With(g.Group("tp").Axes(), tensor.Cut))
			return x.Tape().Apply(&autograd.Copy{Group: g.Group("tp")}, x).Mul(x.Tape().Input(half))
		}
	}
	c := ppJob(ppPlan{2, oneF1B, false, false})
	c.Mesh = "dp=2,pp=2,tp=2"
	requireRefused(t, c, map[string]wrong[*pipeline]{
		"a stage sends a part of the features": {part, "layer_norm"},
		"and the next one does not read the types": {func(m *pipeline, g *ranks) {
			part(m, g)
			if m.last() {
				m.got = func(x nn.T, _ tensor.Types) nn.T { return x }
			}
		}, "axis tp: gradient 0 is invariant, but output 0 is cut: its gradient must be cut"},
		"a stage ends with a Copy": {func(m *pipeline, g *ranks) {
			m.ends = func(x nn.T) nn.T { return x.Tape().Apply(&autograd.Copy{Group: g.Group("tp")}, x) }
		}, "axis tp: gradient 0 is invariant, but output 0 is replicated: its gradient must be partial"},
		"what comes is the same batch on all ranks": {func(m *pipeline, g *ranks) {
			m.got = func(x nn.T, ty tensor.Types) nn.T {
				return x.WithTypes(ty.With(g.Group("dp").Axes(), tensor.Replicated))
			}
		}, "axis dp"},
		"the gradient is of no rows": {func(m *pipeline, _ *ranks) {
			if m.first() {
				m.got = func(x nn.T, _ tensor.Types) nn.T { return x.WithTypes(tensor.Types{}) }
			}
		}, "axis dp: gradient 0 is replicated, but output 0 is varying: its gradient must be varying; send the types of Tape.GradOf along"},
	})
}

// Deferred weight gradients use a unit again: fsdp refuses a unit without Keep.
func TestDeferredWeightsNeedKeptUnits(t *testing.T) {
	c := ppJob(ppPlan{5, oneF1B, true, true})
	c.Mesh = "fsdp=2,pp=2"
	_, err := c.whole().Try()
	require.ErrorContains(t, err, "is used at another place in Backward than in the first step")
}

// If the gradients of a tied weight are not added up, its two stages drift apart.
func TestTiedWeightDrifts(t *testing.T) {
	c := ppJob(ppPlan{2, oneF1B, false, false})
	c.Mesh, c.change = "pp=2", func(n model, _ *ranks) { n.(*pipeline).tied = nil }
	_, err := c.whole().Try()
	require.ErrorContains(t, err, "tok: rank 1 has ")
}
