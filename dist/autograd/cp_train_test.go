package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// cpJob trains with six sequences a step.
func cpJob(model func() model) job { return job{model: model, training: training{Batch: 6}} }

// Sequences that are cut over ranks train as on one rank. Positions, dropout and losses depend on the place in the whole sequence.
func TestRingAttentionEqualsOneRank(t *testing.T) {
	requireOneRank(t, cpJob(newRing), "dp=1,cp=1", "cp=2", "dp=2,cp=2", "cp=3", "fsdp=2,cp=2") // in equal parts
}

func TestGatheredAttentionEqualsOneRank(t *testing.T) {
	requireOneRank(t, cpJob(newSequences), "dp=1,cp=1", "cp=2", "dp=2,cp=2", "cp=3", "cp=5")
}

// Backward of ring attention is the adjoint of its Forward.
func TestRingAdjoint(t *testing.T) {
	for n := 1; n <= 3; n++ {
		disttest.Adjoint(t, n, func(r *dist.Rank) disttest.Communicating { return &ring{r.World, 3} },
			disttest.Operand{Kind: tensor.Varying, Dims: disttest.Dims(2, 3, 18)})
	}
}

// slicing gathers. But its Backward gives each rank only the gradient from this rank's queries.
type slicing struct {
	autograd.AllGather
	to tensor.Kind
}

func (f *slicing) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	first, n := 0, f.Counts[f.Group.Rank()]
	for _, k := range f.Counts[:f.Group.Rank()] {
		first += k
	}
	grads[0] = g.Slice(f.Dim, first, first+n)
}

func (f *slicing) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(f.Group.Axes(), tensor.Varying, f.to)
	return in[:1], err
}

func newSlicing(g *dist.Group, to tensor.Kind) *slicing {
	return &slicing{autograd.AllGather{Group: g, Dim: 1, Counts: cpCounts(g)}, to}
}

// Each program forgets that ranks have parts of the same sequences, and is refused before a step is trained.
func TestWrongSequencesAreRefused(t *testing.T) {
	c := cpJob(newRing)
	c.Mesh = "dp=2,cp=2"
	requireRefused(t, c, map[string]wrong[*sequences]{
		"gradients summed over dp only": {func(_ *sequences, g *ranks) { g.sum = g.Group("dp") },
			"axis cp: parameter in.weight[6 5] is the same on all ranks"},
		"Rows do not know that sequences are cut": {func(m *sequences, _ *ranks) {
			m.rows = func(b disttest.Batch) tensor.Rows { return b.Rows }
		}, "set SeqOver"},
		"built-in attention within the part": {func(m *sequences, _ *ranks) { m.attention = whole },
			"would see this rank's part of its sequence only"},
		"keys gathered, Backward slices, saying so": {func(m *sequences, _ *ranks) { m.gathering(newSlicing(m.cp, tensor.Invariant)) },
			"axis cp: input 1 is the same on all ranks"},
		"attention within the part, no ring": {func(m *sequences, _ *ranks) { m.gathering(&alone{}) },
			"it came from matmul, a product of rows of this rank with rows of this rank"},
		"a mean over this rank's positions": {func(m *sequences, _ *ranks) {
			m.lossOf = func(x, _ nn.T) nn.T { return x.Square().Mean() }
		}, "GlobalMean"},
	})
}

// If a Function calls a slice a reduce-scatter, types do not notice it, but the adjoint test does.
func TestAdjointFindsASlicedGradient(t *testing.T) {
	in := disttest.Operand{Kind: tensor.Varying, Dims: disttest.Dims(2, cpPositions/2, 4)}
	require.NoError(t,
		disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return &newSlicing(r.World, tensor.Replicated).AllGather }, in))
	err := disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return newSlicing(r.World, tensor.Replicated) }, in)
	require.ErrorContains(t, err, "is not the adjoint of Forward")
}

// Types do not notice these: the results differ from one rank's.
func TestWrongSequencesDifferFromOneRank(t *testing.T) {
	c := cpJob(newRing)
	want := c.run(t)
	c.Mesh = "dp=2,cp=2"
	c.change = func(n model, _ *ranks) { // the loss divides by the positions of this part
		n.(*sequences).lossOf = func(x, y nn.T) nn.T {
			return tensor.CrossEntropy(x, y, tensor.CrossEntropyOptions{Count: 6 * cpPositions / 2}).Add(tensor.GlobalMean(x.Square()).Scale(0.1))
		}
	}
	requireDiffers(t, want, c)
}
