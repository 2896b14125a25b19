package autograd_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// ppTraining is ten steps on dp × pp × tp ranks.
type ppTraining struct {
	dp, pp, tp int
	micro      int
	schedule   func(stage, stages, micro int, deferred bool) []action
	deferred   bool
	fsdp       bool
	gathered   bool                      // fsdp gathers each unit when it is used, also with deferred weight gradients
	untied     bool                      // the gradients of the tied weight are not added up
	change     func(e *runner, g ppMesh) // makes the program wrong
}

type ppMesh struct{ dp, pp, tp *dist.Group }

func (c ppTraining) run() (*trained, error) {
	return train(c.dp*c.pp*c.tp, func(r *dist.Rank) ([]float64, nn.Params, error) {
		mesh, err := r.Mesh(fmt.Sprintf("dp=%d,pp=%d,tp=%d", c.dp, c.pp, c.tp))
		if err != nil {
			return nil, nil, err
		}
		return c.rank(r, ppMesh{mesh.Group("dp"), mesh.Group("pp"), mesh.Group("tp")})
	})
}

func (c ppTraining) rank(r *dist.Rank, g ppMesh) (numbers []float64, params nn.Params, err error) {
	m := newPipeline(g.pp.Rank(), g.pp.Size())
	m.cut(g.tp)
	tied, err := tie(m, g)
	if err != nil {
		return nil, nil, err
	}
	e := newRunner(m, g.pp, g.dp, c.micro)
	e.deferred = c.deferred
	if c.change != nil {
		c.change(e, g)
	}
	if params, err = c.attach(m, g.dp); err != nil {
		return nil, nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: r.World})
	schedule := c.schedule(g.pp.Rank(), g.pp.Size(), c.micro, c.deferred)
	for step := range 10 {
		losses := e.step(step, schedule)
		if g.tp.Rank() == 0 {
			numbers = append(numbers, losses...)
		} else {
			numbers = append(numbers, make([]float64, len(losses))...)
		}
		if tied != nil && !c.untied {
			if err := tied.AllReduce(m.Tok.Grad, dist.Sum).Wait(); err != nil {
				return nil, nil, err
			}
		}
		if err := opt.Step(); err != nil {
			return nil, nil, err
		}
	}
	if err := r.World.SumFloats(numbers); err != nil {
		return nil, nil, err
	}
	return append(numbers, opt.GradNorm()), params, nil
}

// onOneRank trains with the ordinary loop: one tape, one microbatch after another.
func (c ppTraining) onOneRank() (*trained, error) {
	return train(1, func(r *dist.Rank) (numbers []float64, params nn.Params, err error) {
		m := newPipeline(0, 1)
		params = nn.Init(m, r.Device, tensor.Float64, 3)
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.4})
		e := newRunner(m, r.World, r.World, c.micro)
		tape := tensor.NewTape(r.Device, tensor.Seed(5))
		for step := range 10 {
			for k := range c.micro {
				ids, labels := e.words(step, k)
				loss := m.loss(m.layers(m.embed(tape, ids)), labels)
				numbers = append(numbers, loss.Item())
				tape.Backward(loss, e.more(k)...)
				tape.Reset()
			}
			if err := opt.Step(); err != nil {
				return nil, nil, err
			}
		}
		return append(numbers, opt.GradNorm()), params, nil
	})
}

// tie returns the group of the two stages that have the tied weight, or nil. Its gradients are added up when all microbatches are done.
// If a stage waited for the other one in its Backward, it would never send what the other one waits for.
func tie(m *pipeline, g ppMesh) (*dist.Group, error) {
	color := -1
	if m.Tok != nil && g.pp.Size() > 1 {
		color = 0
		m.Tok.NarrowCounts(g.pp.Rank() == 0)
	}
	return g.pp.Split(color, 0)
}

func (c ppTraining) attach(m *pipeline, dp *dist.Group) (nn.Params, error) {
	if !c.fsdp {
		return ddp.Attach(dp, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 300})
	}
	s := fsdp.New(fsdp.Config{Shard: dp, DType: tensor.Float64, Seed: 3})
	for _, b := range m.Blocks {
		if b != nil && c.deferred && !c.gathered { // Backward uses the unit twice: for activations, and later for weights
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
	return s.Attach(m)
}

// Stages of a pipeline train as one rank with one tape: with a tied embedding, dropout and clipping, with several schedules, with
// deferred weight gradients, under ddp and fsdp, and with divided layers in the stages.
func TestPipelineEqualsOneRank(t *testing.T) {
	want := map[int]*trained{}
	for _, micro := range []int{2, 5} {
		var err error
		want[micro], err = ppTraining{micro: micro}.onOneRank()
		require.NoError(t, err)
	}
	for name, c := range map[string]ppTraining{
		"one stage, several tapes":                 {dp: 1, pp: 1, tp: 1},
		"two stages":                               {dp: 1, pp: 2, tp: 1},
		"three stages":                             {dp: 1, pp: 3, tp: 1},
		"three stages, two microbatches":           {dp: 1, pp: 3, tp: 1, micro: 2},
		"two stages, weights put off":              {dp: 1, pp: 2, tp: 1, deferred: true},
		"three stages, weights put off":            {dp: 1, pp: 3, tp: 1, deferred: true},
		"all forward first":                        {dp: 1, pp: 3, tp: 1, schedule: gpipe},
		"all forward, then backward, then weights": {dp: 1, pp: 2, tp: 1, schedule: gpipe, deferred: true},
		"under ddp":                                {dp: 2, pp: 2, tp: 1},
		"under ddp, weights put off":               {dp: 2, pp: 2, tp: 1, deferred: true},
		"under fsdp":                               {dp: 2, pp: 2, tp: 1, fsdp: true},
		"under fsdp, weights put off":              {dp: 2, pp: 3, tp: 1, fsdp: true, deferred: true},
		"with tensor parallel layers":              {dp: 1, pp: 2, tp: 2},
		"all of them":                              {dp: 2, pp: 2, tp: 2, fsdp: true, deferred: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.micro == 0 {
				c.micro = 5
			}
			if c.schedule == nil {
				c.schedule = oneF1B
			}
			got, err := c.run()
			require.NoError(t, err)
			got.requireSame(t, want[c.micro])
		})
	}
}

// If a stage gets an input that does not fit its layers, or a gradient that does not fit its outputs, the error is the same as on one
// tape.
func TestWrongStagesAreRefused(t *testing.T) {
	part := func(e *runner, g ppMesh) { // a part of the features, as if the sum over tp was forgotten
		e.ends = func(x nn.T) nn.T {
			half := tensor.FromSlice([]float64{0.5}, 1)
			half = half.WithTypes(half.Types().With(g.tp.Axes(), tensor.Cut))
			return x.Tape().Apply(&autograd.Copy{Group: g.tp}, x).Mul(x.Tape().Input(half))
		}
	}
	for name, c := range map[string]struct {
		change func(e *runner, g ppMesh)
		want   string
	}{
		"a stage sends a part of the features": {part, "layer_norm"},
		"and the next one does not read the types": {func(e *runner, g ppMesh) {
			part(e, g)
			if e.last() {
				e.got = func(x nn.T, _ tensor.Types) nn.T { return x }
			}
		}, "axis tp: gradient 0 is invariant, but output 0 is cut: its gradient must be cut"},
		"a stage ends with a Copy": {func(e *runner, g ppMesh) {
			e.ends = func(x nn.T) nn.T { return x.Tape().Apply(&autograd.Copy{Group: g.tp}, x) }
		}, "axis tp: gradient 0 is invariant, but output 0 is replicated: its gradient must be partial"},
		"what comes is the same batch on all ranks": {func(e *runner, g ppMesh) {
			e.got = func(x nn.T, ty tensor.Types) nn.T { return x.WithTypes(ty.With(g.dp.Axes(), tensor.Replicated)) }
		}, "axis dp"},
		"the gradient is of no rows": {func(e *runner, g ppMesh) {
			if e.first() {
				e.got = func(x nn.T, _ tensor.Types) nn.T { return x.WithTypes(tensor.Types{}) }
			}
		}, "axis dp: gradient 0 is replicated, but output 0 is varying: its gradient must be varying; send the types of Tape.GradOf along"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ppTraining{dp: 2, pp: 2, tp: 2, micro: 2, schedule: oneF1B, change: c.change}.run()
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Deferred weight gradients use a unit again: fsdp refuses a unit without Keep.
func TestDeferredWeightsNeedKeptUnits(t *testing.T) {
	_, err := ppTraining{dp: 2, pp: 2, tp: 1, micro: 5, schedule: oneF1B, fsdp: true, deferred: true, gathered: true}.run()
	require.ErrorContains(t, err, "is used at another place in Backward than in the first step")
}

// If the gradients of a tied weight are not added up, its two stages drift apart.
func TestTiedWeightDrifts(t *testing.T) {
	_, err := ppTraining{dp: 1, pp: 2, tp: 1, micro: 2, schedule: oneF1B, untied: true}.run()
	require.ErrorContains(t, err, "of tok is")
}
