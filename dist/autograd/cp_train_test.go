package autograd_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// cpTraining is ten steps of two microbatches of three sequences, on dp × cp ranks; cp ranks share each sequence.
type cpTraining struct {
	dp, cp    int
	attention string // see attend
	over      func(dp, all *dist.Group) *dist.Group
	gather    func(cp *dist.Group) tensor.Function                 // gathers keys and values, in place of AllGather
	rows      func(r tensor.Rows, dp, all *dist.Group) tensor.Rows // what a batch says about its rows
	loss      func(logits, y nn.T) nn.T
}

func (c cpTraining) run() (*trained, error) {
	return train(c.dp*c.cp, func(r *dist.Rank) ([]float64, nn.Params, error) {
		mesh, err := r.Mesh(fmt.Sprintf("dp=%d,cp=%d", c.dp, c.cp))
		if err != nil {
			return nil, nil, err
		}
		return c.rank(r, mesh.Group("dp"), mesh.Group("cp"))
	})
}

func (c cpTraining) rank(r *dist.Rank, dp, cp *dist.Group) (numbers []float64, params nn.Params, err error) {
	m := newSequences()
	m.attention = attend(c.attention, cp)
	if c.gather != nil {
		m.attention = func(qkv nn.T) nn.T { return gathered(c.gather(cp), qkv, cpHead) }
	}
	over := r.World // gradients are summed over rows and positions
	if c.over != nil {
		over = c.over(dp, r.World)
	}
	if params, err = ddp.Attach(over, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 300}); err != nil {
		return nil, nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.4})
	tape := tensor.NewTape(r.Device, tensor.Seed(8))
	numbers, norms, err := tenSteps(tape, opt, func(micro int) nn.T {
		x, y := c.batch(r, micro, dp, cp)
		return c.lossOf(m.Forward(tape.Input(x)), y)
	})
	if err != nil {
		return nil, nil, err
	}
	if err := r.World.SumFloats(numbers); err != nil {
		return nil, nil, err
	}
	return append(numbers, norms...), params, nil
}

// batch returns this rank's positions of its rows: x [rows, positions, features] and labels [rows·positions].
func (c cpTraining) batch(r *dist.Rank, micro int, dp, cp *dist.Group) (x, y tensor.Tensor) {
	const rows = 3
	first, n := disttest.Part(rows, dp.Rank(), dp.Size())
	counts, at := cpCounts(cp.Size()), 0
	for _, k := range counts[:cp.Rank()] {
		at += k
	}
	k := counts[cp.Rank()]
	x, y = tensor.New(r.Device, tensor.Float64, n, k, cpFeatures), tensor.New(r.Device, tensor.Int64, n*k)
	for i := range n {
		a, b := disttest.Dataset{DType: tensor.Float64, Features: cpFeatures}.Samples(r.Device, (micro*rows+first+i)*cpPositions+at, k)
		tensor.Copy(x.Range(i*k*cpFeatures, (i+1)*k*cpFeatures), a.Range(0, a.Len()))
		tensor.Copy(y.Range(i*k, (i+1)*k), b)
	}
	place := r.World.Rows(micro%2*rows+first, 2*rows)
	place.Seq = tensor.Span{First: at, Total: cpPositions}
	if c.rows != nil {
		place = c.rows(place, dp, r.World)
	}
	return x.WithRows(place), y
}

// lossOf divides by all positions of all rows.
func (c cpTraining) lossOf(logits, y nn.T) nn.T {
	if c.loss != nil {
		return c.loss(logits, y)
	}
	return nn.CrossEntropy(logits.Reshape(-1, 5), y).Add(tensor.GlobalMean(logits.Square()).Scale(0.1))
}

// Sequences that are cut over ranks train as on one rank. Positions, dropout and losses depend on the place in the whole sequence.
func TestContextParallelEqualsOneRank(t *testing.T) {
	want, err := cpTraining{dp: 1, cp: 1, attention: "whole"}.run()
	require.NoError(t, err)
	for _, mesh := range [][2]int{{1, 1}, {1, 2}, {2, 2}, {1, 3}, {1, 5}} {
		for _, attention := range []string{"ring", "gathered"} {
			if attention == "ring" && mesh[1] == 5 { // ring needs equal parts
				continue
			}
			t.Run(fmt.Sprintf("%s dp %d cp %d", attention, mesh[0], mesh[1]), func(t *testing.T) {
				got, err := cpTraining{dp: mesh[0], cp: mesh[1], attention: attention}.run()
				require.NoError(t, err)
				got.requireSame(t, want)
			})
		}
	}
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
	return &slicing{autograd.AllGather{Group: g, Dim: 1, Counts: cpCounts(g.Size())}, to}
}

// Each program forgets that ranks have parts of the same sequences, and is refused before a step is trained.
func TestWrongSequencesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		cpTraining
		want string
	}{
		"gradients summed over dp only": {cpTraining{over: func(dp, _ *dist.Group) *dist.Group { return dp }},
			"axis cp: parameter in.weight[6 5] is the same on all ranks"},
		"Rows do not know that sequences are cut": {cpTraining{rows: func(r tensor.Rows, dp, _ *dist.Group) tensor.Rows {
			r.Over = dp.Axes()
			return r
		}}, "axis cp: an input is replicated, must be varying"},
		"built-in attention within the part": {cpTraining{attention: "whole"}, "would see this rank's part of its sequence only"},
		"keys gathered, Backward slices, saying so": {cpTraining{gather: func(cp *dist.Group) tensor.Function {
			return newSlicing(cp, tensor.Invariant)
		}}, "axis cp: input 1 is the same on all ranks"},
		"a mean over this rank's positions": {cpTraining{loss: func(x, _ nn.T) nn.T { return x.Square().Mean() }}, "GlobalMean"},
	} {
		t.Run(name, func(t *testing.T) {
			c.dp, c.cp = 2, 2
			if c.attention == "" {
				c.attention = "ring"
			}
			_, err := c.run()
			require.ErrorContains(t, err, c.want)
		})
	}
}

// If a Function calls a slice a reduce-scatter, types do not notice it, but the adjoint test does.
func TestAdjointFindsASlicedGradient(t *testing.T) {
	in := disttest.Operand{Kind: tensor.Varying, Dims: disttest.Dims(2, cpPositions/2, 4)}
	require.NoError(t, disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return &newSlicing(r.World, tensor.Replicated).AllGather }, in))
	err := disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return newSlicing(r.World, tensor.Replicated) }, in)
	require.ErrorContains(t, err, "is not the adjoint of Forward")
}

// Types do not notice these: the results differ from one rank's.
func TestWrongSequencesDifferFromOneRank(t *testing.T) {
	one, err := cpTraining{dp: 1, cp: 1, attention: "whole"}.run()
	require.NoError(t, err)
	for name, c := range map[string]cpTraining{
		"attention within the part, no ring": {attention: "alone"},
		"loss divides by the positions of this part": {attention: "ring", loss: func(x, y nn.T) nn.T {
			return tensor.CrossEntropy(x.Reshape(-1, 5), y, tensor.CrossEntropyOptions{Count: 6 * cpPositions / 2}).Add(tensor.GlobalMean(x.Square()).Scale(0.1))
		}},
	} {
		c.dp, c.cp = 2, 2
		got, err := c.run()
		require.NoError(t, err, name)
		worst, where := got.differs(one)
		require.Greater(t, worst, 1e-4, "%s: %s", name, where)
	}
}
