package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const hidden, numExperts = 5, 6

// stacked is a layer of stacked experts between two other layers. All experts see all tokens, weighted by a router. The experts are cut
// over ep (unevenly on 4 ranks), whose ranks also have different rows.
type stacked struct {
	In, Router *nn.Linear
	Up, Down   *tensor.Param // [experts, hidden, features] and [experts, features, hidden]
	Norm       *nn.LayerNorm
	Head       *nn.Linear

	ep      *dist.Group // nil: one rank
	first   int         // first expert of this rank
	gather  *autograd.AllGather
	scatter *autograd.ReduceScatter
}

func newStacked() model {
	return &stacked{In: nn.NewLinear(features, features), Router: nn.NewLinear(features, numExperts), Norm: nn.NewLayerNorm(features),
		Up:   tensor.NewParam(tensor.KaimingUniform(features), numExperts, hidden, features),
		Down: tensor.NewParam(tensor.KaimingUniform(hidden), numExperts, features, hidden), Head: nn.NewLinear(features, 5)}
}

func (m *stacked) cut(g *ranks) {
	m.ep = g.Group("ep")
	cutAlong(m.ep, m.Up, 0, 1, 1)
	cutAlong(m.ep, m.Down, 0, 1, 1)
	m.first, _ = share(numExperts, m.ep)
	m.gather, m.scatter = &autograd.AllGather{Group: m.ep}, &autograd.ReduceScatter{Group: m.ep}
}

func (m *stacked) units(s *fsdp.Sharding, g *ranks) {
	s.Unit(m.In, m.Router)
	s.Unit(m.Up, m.Down).Over(g.over(m.Up), g.Group("dp"))
	s.Keep(m.Norm, m.Head)
}

func (m *stacked) loss(b disttest.Batch) nn.T {
	t := b.Tape
	x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: features})
	h := m.In.Forward(x)
	if m.ep == nil {
		return nn.CrossEntropy(m.Head.Forward(m.Norm.Forward(m.experts(t, h).Add(h))), y)
	}
	counts, err := dist.AllGatherObject(m.ep, b.N)
	if err != nil {
		panic(&tensor.Failure{Op: "stacked", Err: err})
	}
	m.gather.Counts, m.scatter.Counts = counts, counts
	z := t.Apply(m.scatter, m.experts(t, t.Apply(m.gather, h)))
	return nn.CrossEntropy(m.Head.Forward(m.Norm.Forward(z.Add(h))), y)
}

// experts returns the outputs of this rank's experts for x, each weighted.
func (m *stacked) experts(t *tensor.Tape, x nn.T) nn.T {
	k, rows := m.Up.Dims()[0], x.Dim(0)
	all, counts := make([]nn.T, k), make([]int64, k)
	for i := range k {
		all[i], counts[i] = x, int64(rows)
	}
	n := t.Input(tensor.FromSlice(counts, k))
	y := tensor.GroupedLinear(tensor.GroupedLinear(tensor.Concat(0, all...), t.Use(m.Up), n).Tanh(), t.Use(m.Down), n)
	weights := m.Router.Forward(x).Softmax()
	var sum nn.T
	for i := range k {
		z := y.Slice(0, i*rows, (i+1)*rows).Mul(weights.Slice(1, m.first+i, m.first+i+1))
		if i == 0 {
			sum = z
		} else {
			sum = sum.Add(z)
		}
	}
	return sum
}

// Stacked experts train as on one rank, also if some ranks have no rows.
func TestStackedExpertsEqualOneRank(t *testing.T) {
	requireOneRank(t, job{model: newStacked}, "dp=2,ep=2", "fsdp=3,ep=4", "ep=4", "fsdp=3,ep=2", "dp=2,fsdp=2,ep=2")
}
