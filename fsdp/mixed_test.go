package fsdp_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Parameters are gathered in 16 bits, the optimizer updates float32 values, and any number of ranks computes nearly the
// same. The short form leaves out stage 2, and float16 with sums in float32.
func TestMixedPrecision(t *testing.T) {
	exact := onOne(job{}).run(t)
	for _, half := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		for _, reduce := range []tensor.DType{tensor.Float32, half} {
			if half == tensor.Float16 && reduce != half && !reliability.Long(t) {
				continue
			}
			c := fsdp.Config{Compute: half, Reduce: reduce}
			one := job{cfg: c}.run(t)
			require.NotEqual(t, exact.Last, one.Last)
			requireNear(t, exact.Losses, one.Losses, 0.05)
			for stage := 1; stage <= 3; stage++ {
				if c.Stage = stage; stage < 3 && (half == tensor.Float16 || reduce == half) || stage == 2 && !reliability.Long(t) {
					continue
				}
				j := job{training: training{Ranks: 3}, cfg: c}
				j.end = func(at place) error {
					for _, p := range at.Params {
						require.Equal(t, []tensor.DType{tensor.Float32, half, reduce}, []tensor.DType{p.Local.DType(), p.Value.DType(), p.Grad.DType()})
					}
					for _, st := range at.Optimizer.State().Tensors {
						require.Equal(t, tensor.Float32, st.Tensor.DType(), st.Name)
					}
					return nil
				}
				requireNear(t, one.Losses, j.run(t).Losses, 0.02)
			}
		}
	}
}

func TestLongMixedPrecision(t *testing.T) { reliability.AsLong(t, TestMixedPrecision) }

func requireNear(t *testing.T, want, got []float64, tol float64) {
	t.Helper()
	require.Len(t, got, len(want))
	require.InDeltaSlice(t, want, got, tol)
}

// The gradient of a step in 16 bits is the float32 gradient of the rounded values, rounded on its way.
func TestReduceInFloat32(t *testing.T) {
	grads := func(reduce tensor.DType) (all []float64) {
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			n, s := newToy(), fsdp.New(fsdp.Config{Shard: r.World, Compute: tensor.BFloat16, Reduce: reduce})
			n.units(s)
			params := disttest.Must(s.Attach(n))
			tape := tensor.NewTape(r.Device)
			x, y := batch(r, tensor.Float32, r.World.Rank(), 4)
			tape.Backward(nn.CrossEntropy(n.Forward(tape.Input(x).Cast(tensor.BFloat16)), y))
			if r.World.Rank() == 0 {
				for _, p := range params {
					all = append(all, tensor.Floats(p.Grad.ToLocal())...)
				}
			}
			return nil
		}))
		return all
	}
	wide, narrow := grads(tensor.Float32), grads(tensor.BFloat16)
	require.NotEqual(t, wide, narrow)
	rounded := 0
	for i, v := range wide {
		require.InDelta(t, v, narrow[i], 0.02*max(1e-3, v, -v)+1e-4)
		if math.Float32bits(float32(v))&0xffff != 0 { // more bits than bfloat16 has
			rounded++
		}
	}
	require.Greater(t, rounded, len(wide)/4, "sums of two bfloat16 gradients have more bits than one")
}

func TestMixedTraffic(t *testing.T) {
	j := job{training: training{Ranks: 3, Steps: 4, Micro: 1, Batch: 12}, model: newChain, cfg: fsdp.Config{Compute: tensor.BFloat16}}
	const n, all = 5, 5 * (7*7 + 7)
	wide := count(t, j, 2)
	require.Equal(t, uint64(2*2*all*2*(n+n-1)/n), wide.gathered, "gathered in two bytes")
	require.Equal(t, uint64(2*4*all*2), wide.reduced, "reduced in four")
	j.cfg.Reduce = tensor.BFloat16
	require.Equal(t, wide.reduced/2, count(t, j, 2).reduced)
}

// Hybrid sharding sums shards over copies. They are large enough for an all-reduce that does not send everything to all.
func TestHybridTraffic(t *testing.T) {
	const all, shard, copies, steps = (width*60 + 60) + (60*61 + 61), 2, 3, 2
	wide := func() model { return &chain{nn.Sequential{nn.NewLinear(width, 60), nn.NewLinear(60, 61)}} }
	got := count(t, job{training: training{Mesh: "dp=3,fsdp=2", Steps: 4, Batch: 36}, model: wide}, steps)
	require.Equal(t, uint64(steps*2), got.sums, "after the last microbatch only")
	require.Equal(t, uint64(steps*4*all*2*(copies-1)), got.summed)
	require.Equal(t, uint64(steps*2*4*all*(shard-1)*copies), got.reduced)
}

// routed is a 16-bit model with a layer in float32.
type routed struct{ In, Router, Head *nn.Linear }

func newRouted() model {
	return &routed{nn.NewLinear(width, width), nn.NewLinear(width, width), nn.NewLinear(width, width)}
}

func (n *routed) Forward(x nn.T) nn.T {
	x = n.In.Forward(x)
	wide := n.Router.Forward(x.Cast(tensor.Float32))
	return n.Head.Forward(wide.Tanh().Cast(x.DType()).Add(x))
}

func (n *routed) units(s *fsdp.Sharding) {
	s.Keep(n.In)
	s.Unit(n.Router).Types(tensor.Float32, tensor.Float32)
	s.Unit(n.Head)
}

// A unit has types of its own, in what is gathered and in what is reduced.
func TestUnitTypes(t *testing.T) {
	half := tensor.BFloat16
	exact := onOne(job{training: training{Micro: 1}, model: newRouted}).run(t)
	for stage := 1; stage <= 3; stage++ {
		j := job{training: training{Ranks: 3, Micro: 1}, model: newRouted, cfg: fsdp.Config{Stage: stage, Compute: half, Reduce: half}}
		j.end = func(at place) error {
			for _, p := range at.Params {
				want := half
				if p.Name() == "router.weight" || p.Name() == "router.bias" {
					want = tensor.Float32
				}
				require.Equal(t, []tensor.DType{tensor.Float32, want, want}, []tensor.DType{p.Local.DType(), p.Value.DType(), p.Grad.DType()}, p.Name())
			}
			return nil
		}
		requireNear(t, exact.Losses, j.run(t).Losses, 0.05)
	}
	j := job{training: training{Ranks: 3, Steps: 4, Micro: 1, Batch: 12}, model: newRouted, cfg: fsdp.Config{Compute: half, Reduce: half}}
	const layer = width*width + width
	got := count(t, j, 1)
	require.Equal(t, uint64(2*layer*(2+2*4+2)), got.gathered, "the kept one, the router twice in four bytes, the last one")
	require.Equal(t, uint64(2*layer*(2+4+2)), got.reduced)
	err := disttest.OnRanks(1, func(r *dist.Rank) error {
		n, s := newRouted(), fsdp.New(fsdp.Config{Shard: r.World})
		s.Unit(n).Types(tensor.Float32, tensor.Float64)
		_, err := s.Attach(n)
		return err
	})
	require.ErrorContains(t, err, "fsdp: unit 0: types Compute=float32 and Reduce=float64 must each be float32 or a 16-bit float type")
}

// newFloat8 is a chain whose two layers in the middle compute with 8-bit floats.
func newFloat8() model {
	c := &chain{nn.Sequential{nn.NewLinear(width, 32), nn.NewLinear(32, 48), nn.NewLinear(48, 32), nn.NewLinear(32, classes)}}
	nn.Float8(c, ops.PerRow, "layers.1", "layers.2")
	return c
}

// Weights that are cut are scaled whole: with scales per row, ranks compute what one rank does.
func TestFloat8EqualsOneRank(t *testing.T) {
	j := job{training: training{Steps: 3}, cfg: fsdp.Config{DType: tensor.Float32}, model: newFloat8}
	want := onOne(j).run(t)
	require.Less(t, want.Losses[2], want.Losses[0])
	for stage := 1; stage <= 3; stage++ {
		for ranks := 2; ranks <= 3; ranks++ {
			j.Ranks, j.cfg.Stage = ranks, stage
			disttest.RequireEqual(t, want, j.run(t), 1e-5)
		}
	}
}

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
		if j.Ranks == 1 && !reliability.Long(t) {
			continue
		}
		for j.cfg.Stage = 1; j.cfg.Stage <= 3; j.cfg.Stage++ {
			for _, j.offload = range []bool{false, true} {
				if j.offload == (j.cfg.Stage == 2) || reliability.Long(t) {
					disttest.RequireEqual(t, want, j.run(t), 1e-10)
				}
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

func TestLongParametersWithoutElements(t *testing.T) {
	reliability.AsLong(t, TestParametersWithoutElements)
}

// They have the types of the others, too.
func TestMixedTypesWithoutElements(t *testing.T) {
	res := job{training: training{Ranks: 2}, model: newHollow, cfg: fsdp.Config{DType: tensor.Float32, Compute: tensor.BFloat16}}.run(t)
	res.Learns(t, 0.9)
}
