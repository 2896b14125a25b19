package fsdp_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

func onOne(j job) job {
	j.Ranks, j.Mesh, j.one = 1, "", true
	return j
}

// Ten steps of AdamW with clipping, dropout and microbatches; some ranks have no rows at all. The short form has each stage once.
func TestEqualsOneRank(t *testing.T) {
	j := job{cfg: fsdp.Config{DType: tensor.Float64}}
	want := onOne(j).run(t)
	want.Learns(t, 0.9)
	require.Greater(t, want.Norms[0], 0.5, "clipping does something")
	for stage := 1; stage <= 3; stage++ {
		for ranks := 1; ranks <= 5; ranks++ {
			j.Ranks, j.cfg.Stage, j.cfg.OncePerStep = ranks, stage, ranks == 3
			if (ranks == stage+2) != reliability.Long(t) {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
	}
}

func TestLongEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestEqualsOneRank) }

// naively makes j the training of Naive.
func naively(j job) job {
	j.with = func(r *dist.Rank, n model) (nn.Params, error) {
		return fsdp.Naive(n, fsdp.Config{Shard: r.World, DType: j.cfg.DType, Seed: 7})
	}
	return j
}

// Naive is right where one rank is: also in uneven parts, with microbatches, dropout, frozen parameters and clipping.
func TestNaiveEqualsOneRank(t *testing.T) {
	for _, m := range []func() model{func() model { return newToy() }, func() model { return &checkpointed{*newToy()} }} {
		j := job{cfg: fsdp.Config{DType: tensor.Float64}, model: m}
		want := onOne(j).run(t)
		for ranks := 1; ranks <= 5; ranks++ {
			if j.Ranks = ranks; (ranks == 3) != reliability.Long(t) {
				disttest.RequireEqual(t, want, naively(j).run(t), 1e-10)
			}
		}
	}
}

func TestLongNaiveEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestNaiveEqualsOneRank) }

// A rank that does not use what others use adds zeros to its gradient.
func TestNaiveUnused(t *testing.T) {
	var grads [2][]float64
	for i, skips := range []bool{false, true} {
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			n := newToy()
			params := disttest.Must(fsdp.Naive(n, fsdp.Config{Shard: r.World}))
			tape := tensor.NewTape(r.Device, tensor.Eval())
			x, y := batch(r, tensor.Float32, 4*r.World.Rank(), 4)
			tape.Backward(nn.CrossEntropy(n.Forward(tape.Input(x)), y))
			for _, p := range params {
				p.Consume()
			}
			tape.Reset()
			factor := float64(1 - r.World.Rank()) // rank 1 has nothing to add
			if skips && r.World.Rank() == 1 {
				n.skip = func(i int) bool { return i == 2 }
			}
			tape.Backward(nn.CrossEntropy(n.Forward(tape.Input(x)), y).Scale(factor))
			if r.World.Rank() == 1 {
				for _, p := range params {
					grads[i] = append(grads[i], tensor.Floats(p.Grad.ToLocal())...)
				}
			}
			return nil
		}))
	}
	require.Equal(t, grads[0], grads[1])
}

// Where sums have the same order, there is no other bit: ranks are summed in their order, and whole gradients of
// microbatches before that. Stages 2 and 3 without OncePerStep sum microbatches last. The short form has stages 2 and 3, once each.
func TestEqualsNaive(t *testing.T) {
	for _, ranks := range []int{2, 3, 5} {
		if ranks != 3 && !reliability.Long(t) {
			continue
		}
		for micro, dtype := range map[int]tensor.DType{1: tensor.Float64, 3: tensor.Float32} {
			j := job{training: training{Ranks: ranks, Micro: micro, Batch: 24, Rule: unclipped}, cfg: fsdp.Config{DType: dtype, OncePerStep: true}}
			want := naively(j).run(t)
			for stage := 1; stage <= 3; stage++ {
				if j.cfg.Stage = stage; (micro/2+stage)%3 != 0 && !reliability.Long(t) {
					continue
				}
				got := j.run(t)
				want.Norms = got.Norms // sums of other parts
				disttest.RequireEqual(t, want, got, 0)
			}
		}
		if j := (job{training: training{Ranks: ranks, Micro: 3, Batch: 24}, cfg: fsdp.Config{DType: tensor.Float64}}); reliability.Long(t) {
			disttest.RequireEqual(t, naively(j).run(t), j.run(t), 1e-10)
		}
	}
}

func TestLongEqualsNaive(t *testing.T) { reliability.AsLong(t, TestEqualsNaive) }

// Copies of the model on a mesh, each cut over two ranks.
func TestHybrid(t *testing.T) {
	j := job{training: training{Batch: 36}, cfg: fsdp.Config{DType: tensor.Float64}}
	want := onOne(j).run(t)
	for _, j.Mesh = range []string{"dp=2,fsdp=2", "dp=3,fsdp=2"} {
		for stage := 1; stage <= 3; stage++ {
			j.cfg.Stage, j.cfg.OncePerStep = stage, j.Mesh == "dp=3,fsdp=2"
			if (stage == 2) == j.cfg.OncePerStep != reliability.Long(t) {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
	}
}

func TestLongHybrid(t *testing.T) { reliability.AsLong(t, TestHybrid) }

// frozen has a layer that is frozen before Attach, one that is frozen after step 3, and one that is made by somebody else.
type frozen struct {
	A, B, C, Ignored, D *nn.Linear
	Mean                *tensor.Buffer
}

func newFrozen() model {
	l := func() *nn.Linear { return nn.NewLinear(width, width) }
	f := &frozen{l(), l(), l(), l(), l(), tensor.NewBuffer(tensor.Constant(0.25), width)}
	f.B.W.Freeze()
	f.Ignored.W.Freeze()
	f.Ignored.B.Freeze()
	return f
}

func (f *frozen) Forward(x nn.T) nn.T {
	x = f.B.Forward(f.A.Forward(x).Tanh()).Add(x.Tape().Use(&f.Mean.Param))
	return f.D.Forward(f.Ignored.Forward(f.C.Forward(x)))
}

func (f *frozen) units(s *fsdp.Sharding) {
	s.Unit(f.A)
	s.Unit(f.B, f.Mean)
	s.Unit(f.C)
	s.Unit(f.D)
	s.Ignore(f.Ignored)
}

func (f *frozen) makeOwn(dev tensor.Device, dtype tensor.DType, seed uint64) {
	nn.ParamsOf(f)
	for _, p := range nn.Within(f.Ignored) {
		p.Make(dev, dtype, seed)
	}
}

func TestFrozenAndIgnored(t *testing.T) {
	j := job{training: training{Micro: 1}, cfg: fsdp.Config{DType: tensor.Float64}, model: newFrozen}
	never := onOne(j).run(t)
	j.before = func(p place) error {
		if p.Step == 4 {
			p.model.(*frozen).C.W.Freeze()
			p.model.(*frozen).C.B.Freeze()
		}
		return nil
	}
	want := onOne(j).run(t)
	require.NotEqual(t, never.Last, want.Last)
	for stage := 1; stage <= 3; stage++ {
		for ranks := 1; ranks <= 3; ranks++ {
			j.Ranks, j.cfg.Stage = ranks, stage
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		}
	}
}

// checkpointed runs its blocks again in Backward.
type checkpointed struct{ toy }

func (c *checkpointed) Forward(x nn.T) nn.T {
	t := x.Tape()
	x = c.In.Forward(x).Mul(t.Use(c.Scale))
	for _, b := range c.Blocks {
		x = t.Checkpoint(func(in ...nn.T) nn.T { return b.Forward(in[0]) }, x)
	}
	return c.Head.Forward(c.Wide.Forward(c.Tied.Forward(x)).Tanh())
}

func TestActivationCheckpoints(t *testing.T) {
	j := job{training: training{Steps: 10, Micro: 1}, cfg: fsdp.Config{DType: tensor.Float64}}
	want := onOne(j).run(t)
	j.model, j.Ranks = func() model { return &checkpointed{*newToy()} }, 2
	disttest.RequireEqual(t, want, j.run(t), 1e-10)
	require.Equal(t, uint64(2*(1+4*2+1)), count(t, j, 2).gathers)
}

// Forward passes without Backward, and a NoGrad tape, fit in between.
func TestEvaluation(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		for _, m := range []func() model{func() model { return newToy() }, newChain} {
			j := job{training: training{Ranks: 2, Steps: 6, Micro: 1}, cfg: fsdp.Config{Stage: stage, DType: tensor.Float64}, model: m}
			want := onOne(j).run(t)
			j.before = func(p place) error {
				eval := tensor.NewTape(p.Rank.Device, tensor.NoGrad())
				x, _ := batch(p.Rank, tensor.Float64, 0, 4)
				if c, ok := p.model.(*chain); ok && p.Step > 3 { // a part of the model, which is not the same on all ranks
					c.Layers[:2+p.Rank.World.Rank()].Forward(eval.Input(x))
				}
				for range p.Step % 3 {
					require.False(t, math.IsNaN(tensor.Floats(p.model.Forward(eval.Input(x)))[0]))
					eval.Reset()
				}
				return nil
			}
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		}
	}
}

// Between Backward and the optimizer's step a forward pass sees the old values, and the one after it the new ones; of kept units,
// too.
func TestForwardBeforeStep(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		for _, make := range []func() model{newChain, func() model { return newToy() }} {
			require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error { return forwardBeforeStep(t, r, make(), stage) }))
		}
	}
}

func forwardBeforeStep(t *testing.T, r *dist.Rank, n model, stage int) error {
	s := fsdp.New(fsdp.Config{Shard: r.World, Stage: stage})
	n.units(s)
	params := disttest.Must(s.Attach(n))
	opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
	tape, eval := tensor.NewTape(r.Device, tensor.Eval()), tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval())
	x, y := batch(r, tensor.Float32, 0, 4)
	look := func() []float64 { defer eval.Reset(); return tensor.Floats(n.Forward(eval.Input(x))) }
	before := look()
	tape.Backward(nn.CrossEntropy(n.Forward(tape.Input(x)), y))
	require.Equal(t, before, look())
	require.NoError(t, opt.Step())
	after := look()
	require.NotEqual(t, before, after)
	first := params[0] // of a kept unit, where there are some
	first.Changed()
	require.Equal(t, after, look())
	for i := range tensor.Data[float32](first.Local) {
		tensor.Data[float32](first.Local)[i] += 1
	}
	first.Changed()
	require.NotEqual(t, after, look())
	return nil
}

// An optimizer may have some of the parameters only. The others' gradients are dropped just before they would be refused.
func TestOptimizerOfSomeParameters(t *testing.T) {
	var want []float64
	for _, stage := range []int{3, 2, 1} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			n := newChain()
			s := fsdp.New(fsdp.Config{Shard: r.World, Stage: stage})
			n.units(s)
			params := disttest.Must(s.Attach(n))
			opt := optim.NewSGD(params[4:6], optim.SGDConfig{LR: 1})
			tape := tensor.NewTape(r.Device)
			x, y := batch(r, tensor.Float32, 0, 4)
			var losses []float64
			for range 4 {
				loss := nn.CrossEntropy(n.Forward(tape.Input(x)), y)
				losses = append(losses, loss.Item())
				for _, p := range params {
					p.Consume()
				}
				tape.Backward(loss)
				require.NoError(t, opt.Step())
				tape.Reset()
			}
			require.IsDecreasing(t, losses)
			if r.World.Rank() == 0 && want == nil {
				want = losses
			} else if r.World.Rank() == 0 {
				require.InDeltaSlice(t, want, losses, 1e-6)
			}
			return nil
		})
		require.NoError(t, err)
	}
}

// A step changes values, of which a rank has a part: a Backward of what was computed with the old ones is refused on all.
func TestBackwardAfterTheStepIsRefused(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		attached(t, 3, fsdp.Config{
			DType: tensor.Float64, Stage: stage,
		}, func() model { return newToy() }, func(r *dist.Rank, m model, _ *fsdp.Sharding, params nn.Params) {
			early, tape := tensor.NewTape(r.Device), tensor.NewTape(r.Device)
			x, y := batch(r, tensor.Float64, 2*r.World.Rank(), 2)
			x = x.WithRows(r.World.Rows(2*r.World.Rank(), 6))
			loss := nn.CrossEntropy(m.Forward(early.Input(x)), y)
			tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(x)), y))
			assert.NoError(t, optim.NewSGD(params, optim.SGDConfig{LR: 0.1}).Step())
			assert.ErrorContains(t, tensor.Try(func() { early.Backward(loss) }), "was changed (by an optimizer's step", "stage %d", stage)
		})
	}
}
