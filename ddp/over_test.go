package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// mixture is a dense vector and four stacked experts. Token i goes to expert i mod 4.
type mixture struct {
	Dense   *tensor.Param
	Experts *tensor.Param // [4, 3]

	first  int         // expert
	dp, ep tensor.Axes // tokens differ along the first; along the second, they are at their experts
}

func newMixture() *mixture {
	return &mixture{Dense: tensor.NewParam(tensor.UniformInit(-1, 1), 3), Experts: tensor.NewParam(tensor.UniformInit(-1, 1), 4, 3)}
}

// loss is the sum over this rank's experts, of which each has as many tokens as a batch has rows.
func (m *mixture) loss(b disttest.Batch) nn.T {
	var sum nn.T
	t := b.Tape
	experts := t.Use(m.Experts)
	for e := range m.Experts.Dims()[0] {
		x := tensor.New(m.Dense.Value.Device(), tensor.Float64, b.N, 3)
		for i := range b.N {
			tensor.UniformInit(-1, 1).Fill(x.Range(3*i, 3*i+3), 8, uint64(3*(4*(b.First+i)+m.first+e)))
		}
		x = x.WithTypes(x.Types().With(m.dp, tensor.Varying).With(m.ep, tensor.Cut))
		y := t.Input(x).Mul(experts.Slice(0, e, e+1)).Tanh().Mul(t.Use(m.Dense)).Tanh().Sum()
		if sum.IsZero() {
			sum = y
		} else {
			sum = sum.Add(y)
		}
	}
	return sum
}

// experts trains a mixture on a mesh. before is called before each step.
func experts(attach attacher, mesh string, every int, before func(m *mixture, s *disttest.State)) training {
	return training{Batch: 8, Mesh: mesh, Attach: func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		m := newMixture()
		k := 4 / mesh.Size("ep")
		m.first = k * mesh.Coord("ep")
		m.Experts.Place(mesh.Group("ep").Axis(), layout.Division{})
		m.dp, m.ep = mesh.Group("dp").Axes(), mesh.Group("ep").Axes()
		over := func(p *tensor.Param) *dist.Group {
			if p == m.Experts {
				return mesh.Group("dp")
			}
			return nil
		}
		params, err := attach(r.World, m, ddp.Config{DType: tensor.Float64, Seed: 5, BucketBytes: 64, CheckEvery: every, Over: over})
		return disttest.Attached{Params: params, Norm: r.World, Data: mesh.Group("dp"), Sum: r.World, Loss: m.loss,
			Before: func(s *disttest.State) error {
				before(m, s)
				return nil
			}}, err
	}}
}

// Experts that are shared out over ep are summed over those that hold the same ones, all else over all ranks: parameters,
// gradients and their norm are those of one rank.
func TestOverSmallerGroups(t *testing.T) {
	one := training{Batch: 8, Attach: func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		m := newMixture()
		return disttest.Attached{Params: nn.Init(m, r.Device, tensor.Float64, 5), Loss: m.loss}, nil
	}}
	want := one.Run(t)
	require.Greater(t, want.Norms[9], 1.0, "clipping does something")
	for _, mode := range []struct {
		attach attacher
		mesh   string
	}{{ddp.Attach, "dp=4,ep=1"}, {ddp.Attach, "dp=2,ep=2"}, {ddp.Attach, "dp=1,ep=4"}, {ddp.Naive, "dp=2,ep=2"}} {
		c := experts(mode.attach, mode.mesh, 0, func(*mixture, *disttest.State) {})
		disttest.RequireEqual(t, want, c.Run(t), 1e-12)
	}
}
