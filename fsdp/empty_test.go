package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// hollow is a toy with parameters that have no elements: an adapter of rank 0, half of which is frozen, and
// classes of which there are none.
type hollow struct {
	toy
	Down, Up, More *tensor.Param
}

func newHollow() model {
	n := &hollow{*newToy(), tensor.NewParam(tensor.Constant(1), 0, width), tensor.NewParam(tensor.Constant(1), width, 0),
		tensor.NewParam(tensor.Constant(1), 0, classes)}
	n.Down.Freeze()
	return n
}

func (n *hollow) Forward(x nn.T) nn.T {
	t := x.Tape()
	x = x.Add(tensor.Linear(tensor.Linear(x, t.Use(n.Down), nn.T{}), t.Use(n.Up), nn.T{}))
	return n.toy.Forward(x.Slice(1, 0, width)).Add(t.Use(n.More).Sum())
}

// units has one in a unit with others, one in a unit of its own, and one in none.
func (n *hollow) units(s *fsdp.Sharding) {
	s.Unit(n.Down)
	s.Keep(n.Scale, n.In, n.Tied, n.Up)
	for _, b := range n.Blocks {
		s.Unit(b)
	}
	s.Unit(n.Wide, n.Head)
}

// Parameters without elements train with the others.
func TestParametersWithoutElements(t *testing.T) {
	j := job{one: true, model: newHollow, cfg: fsdp.Config{DType: tensor.Float64}}
	want := j.run(t)
	j.one = false
	for _, j.Ranks = range []int{1, 3} {
		for j.cfg.Stage = 1; j.cfg.Stage <= 3; j.cfg.Stage++ {
			for _, j.offload = range []bool{false, true} {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
		d := j
		d.offload = false
		for name, attach := range map[string]func(*dist.Group, any, ddp.Config) (nn.Params, error){"ddp": ddp.Attach, "ddp.Naive": ddp.Naive} {
			d.Name, d.with = name, func(r *dist.Rank, n model) (nn.Params, error) {
				return attach(r.World, n, ddp.Config{DType: tensor.Float64, Seed: 7, BucketBytes: 1})
			}
			disttest.RequireEqual(t, want, d.run(t), 1e-10)
		}
		d.Name, d.with = "fsdp.Naive", func(r *dist.Rank, n model) (nn.Params, error) {
			return fsdp.Naive(n, fsdp.Config{Shard: r.World, DType: tensor.Float64, Seed: 7})
		}
		disttest.RequireEqual(t, want, d.run(t), 1e-10)
	}
}

// They have the types of the others, too.
func TestMixedTypesWithoutElements(t *testing.T) {
	res := job{training: training{Ranks: 2}, model: newHollow, cfg: fsdp.Config{DType: tensor.Float32, Compute: tensor.BFloat16}}.run(t)
	require.Less(t, res.Losses[9], 0.9*res.Losses[0])
}
