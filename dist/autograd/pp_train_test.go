package autograd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// ppJob trains with microbatches of five rows.
func ppJob(plan ppPlan) job {
	return job{training: training{Micro: plan.micro, Batch: 5 * plan.micro}, model: func() model { return newPipeline(plan) }}
}

// Stages of a pipeline train as one rank with one tape: with a tied embedding, dropout and clipping, with several schedules, with
// deferred weight gradients, under ddp and fsdp, and with divided layers in the stages. One stage has several tapes, too.
func TestPipelineEqualsOneRank(t *testing.T) {
	for name, c := range map[string]struct {
		plan   ppPlan
		meshes string
	}{
		"one forward, one backward":          {ppPlan{5, oneF1B, false, false}, "pp=1 pp=2 pp=3 dp=2,pp=2 fsdp=2,pp=2 pp=2,tp=2"},
		"weights put off":                    {ppPlan{5, oneF1B, true, false}, "pp=2 pp=3 dp=2,pp=2 fsdp=2,pp=3 fsdp=2,pp=2,tp=2"},
		"two microbatches":                   {ppPlan{2, oneF1B, false, false}, "pp=3"},
		"all forward first":                  {ppPlan{5, gpipe, false, false}, "pp=3"},
		"all forward first, weights at last": {ppPlan{5, gpipe, true, false}, "pp=2"},
	} {
		t.Run(name, func(t *testing.T) { requireOneRank(t, ppJob(c.plan), strings.Fields(c.meshes)...) })
	}
}

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
