package ddp_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// The short form has float64, on three ranks.
func TestRanksEqualOneRank(t *testing.T) {
	steps := 12
	if reliability.Long(t) {
		steps = 100
	}
	for _, c := range []struct {
		dtype tensor.DType
		steps int
		tol   float64
	}{{tensor.Float64, steps, 1e-10}, {tensor.Float32, 20, 1e-5}} {
		if c.dtype == tensor.Float32 && !reliability.Long(t) {
			continue
		}
		for _, rule := range []func(nn.Params, optim.Norm) *optim.Optimizer{sgd, adamW(0)} {
			j := job{training: simple(1, c.steps, 63), cfg: ddp.Config{DType: c.dtype, BucketBytes: 2000}} // several buckets
			j.Rule = rule
			want := j.run(t)
			require.NotEqual(t, want.Losses[c.steps-1], want.Losses[0])
			for _, j.Ranks = range []int{2, 3, 4} {
				if j.Ranks == 3 || reliability.Long(t) {
					disttest.RequireEqual(t, want, j.run(t), c.tol)
				}
			}
		}
	}
}

func TestLongRanksEqualOneRank(t *testing.T) { reliability.AsLong(t, TestRanksEqualOneRank) }

func TestBucketsEqualNaive(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		fast := job{training: simple(n, 12, 40), cfg: ddp.Config{BucketBytes: 1500}}
		slow := fast
		slow.attach = ddp.Naive
		disttest.RequireEqual(t, slow.run(t), fast.run(t), 0)
	}
}

// dropFirst loses the communication of bucket 0.
type dropFirst struct{}

func (dropFirst) Start(b *ddp.Bucket) dist.Work {
	if b.Index == 0 {
		return dist.Work{}
	}
	return b.Group.AllReduce(b.Grad, dist.Sum)
}
func (dropFirst) Finish(*ddp.Bucket) {}

// Gradients that stay each rank's own show in the second step.
func TestLostCommunicationIsSeen(t *testing.T) {
	j := job{training: simple(2, 2, 63), cfg: ddp.Config{DType: tensor.Float64, BucketBytes: 1500, Hook: dropFirst{}}}
	require.ErrorContains(t, j.try(), "must have the same values on all ranks of world")
}

func TestAccumulation(t *testing.T) {
	j := job{training: training{Micro: 1, Batch: 60, Rule: adamW(0)}, cfg: ddp.Config{DType: tensor.Float64}, model: func() nn.Layer {
		return nn.Sequential{nn.NewLinear(19, 31), nn.Tanh, nn.NewLinear(31, 5)} // no dropout: its masks are those of microbatches
	}}
	want := j.run(t)
	for _, n := range []int{1, 2, 3} {
		j.Ranks, j.Micro = n, 3
		got, stats := j.counted(t)
		disttest.RequireEqual(t, want, got, 1e-10)
		if n > 1 { // one communication a step, not one a microbatch
			require.Equal(t, uint64(disttest.Steps), stats[0].Calls["allreduce"])
		}
	}
}

func TestBytes(t *testing.T) {
	const steps = 4
	elems := 19*31 + 31 + 31*17 + 17 + 17*5 + 5
	for _, n := range []int{2, 3} {
		_, stats := job{training: simple(n, steps, 30), cfg: ddp.Config{BucketBytes: 4800}}.counted(t)
		wire := uint64(0)
		for _, s := range stats {
			wire += s.Wire["allreduce"]
			require.Equal(t, uint64(steps*elems*4), s.Payload["allreduce"])
		}
		require.Equal(t, uint64(2*(n-1)*steps*elems*4), wire, "summed over %d ranks", n)
	}
}

func TestCompress(t *testing.T) {
	exact, all := job{training: simple(2, 20, 64)}.counted(t)
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		res, half := job{training: simple(2, 20, 64), cfg: ddp.Config{Hook: ddp.Compress(d)}}.counted(t)
		require.Equal(t, all[0].Wire["allreduce"], 2*half[0].Wire["allreduce"], "half the bytes")
		require.NotEqual(t, exact.Last, res.Last)
		disttest.RequireEqual(t, exact, res, 0.02)
	}
}

// forked uses its second branch on the ranks whose number it is told.
type forked struct {
	A, B, Head *nn.Linear
	useB       bool
}

func (f *forked) Forward(x nn.T) nn.T {
	h := f.A.Forward(x)
	if f.useB {
		h = h.Add(f.B.Forward(x))
	}
	return f.Head.Forward(h.Tanh())
}

func TestUnusedParameters(t *testing.T) {
	layer := func(use bool) func() nn.Layer {
		return func() nn.Layer {
			return &forked{nn.NewLinear(19, 8), nn.NewLinear(19, 8), nn.NewLinear(8, 5), use}
		}
	}
	j := job{training: training{Ranks: 2, Micro: 1, Batch: 20, Rule: adamW(0)}, cfg: ddp.Config{DType: tensor.Float64}, model: layer(false)}
	err := j.try()
	require.ErrorContains(t, err, "no gradient for ")
	require.ErrorContains(t, err, "b.weight")
	require.ErrorContains(t, err, "AllowUnused")

	one := j
	one.Ranks, one.attach = 1, func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
		return nn.Init(model, g.Device(), c.DType, c.Seed), nil
	}
	j.cfg.AllowUnused = true
	disttest.RequireEqual(t, one.run(t), j.run(t), 1e-10)
}

func TestUsedOnOneRankOnly(t *testing.T) {
	j := job{training: simple(2, 10, 20), cfg: ddp.Config{DType: tensor.Float64, AllowUnused: true, BucketBytes: 500}}
	j.model = func() nn.Layer { return &forked{nn.NewLinear(19, 8), nn.NewLinear(19, 8), nn.NewLinear(8, 5), false} }
	j.attach = func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
		model.(*forked).useB = g.Rank() == 1
		return ddp.Attach(g, model, c)
	}
	got := j.run(t) // which compares the ranks: the branch of the other one was trained on rank 0, too
	require.NotEqual(t, got.First["b.weight"], got.Last["b.weight"])
}

func TestModelsDiffer(t *testing.T) {
	err := disttest.OnRanks(3, func(r *dist.Rank) error {
		width := 4
		if r.World.Rank() == 2 {
			width = 5
		}
		_, err := ddp.Attach(r.World, nn.Sequential{nn.NewLinear(3, width)}, ddp.Config{})
		return err
	})
	require.ErrorContains(t, err,
		"ddp: ranks differ: rank 2 has parameter 0: 0.weight float32[5,3] frozen=false where rank 0 has parameter 0: 0.weight float32[4,3]")
	err = disttest.OnRanks(2, func(r *dist.Rank) error {
		_, err := ddp.Attach(r.World, nn.Sequential{nn.NewLinear(3, 2)}, ddp.Config{BucketBytes: 100 * r.World.Rank()})
		return err
	})
	require.ErrorContains(t, err, "rank 1 has BucketBytes=100 Hook=<nil> AllowUnused=false where rank 0 has BucketBytes=0")
	err = disttest.OnRanks(2, func(r *dist.Rank) error {
		_, err := ddp.Attach(r.World, nn.Sequential{nn.NewLinear(3, 2)}, ddp.Config{
			Hook: ddp.Compress([]tensor.DType{tensor.Float16, tensor.BFloat16}[r.World.Rank()])})
		return err
	})
	require.ErrorContains(t, err, "rank 1 has BucketBytes=0 Hook=Compress(bfloat16) AllowUnused=false where rank 0 has BucketBytes=0 "+
		"Hook=Compress(float16)")
}

func TestRankZerosValues(t *testing.T) {
	j := job{training: simple(3, 1, 9)}
	j.attach = func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
		c.Seed = uint64(g.Rank()) // every rank makes values of its own
		return ddp.Attach(g, model, c)
	}
	j.run(t) // which compares the ranks
}

func TestSteadySteps(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	steps := 20
	if reliability.Long(t) {
		steps = 100
	}
	for name, cfg := range map[string]ddp.Config{
		"plain": {BucketBytes: 2000},
		"all":   {BucketBytes: 2000, AllowUnused: true, Hook: ddp.Compress(tensor.Float16)},
	} {
		t.Run(name, func(t *testing.T) {
			step := func(r *dist.Rank) (func() error, error) { return stepper(r, cfg) }
			disttest.SteadySteps(t, dist.Run, 12, steps, step)
			machines := turn(t, disttest.GPUs(), map[string]string{"plain": "GPUs", "all": "one GPU"}[name])
			if name == "plain" && !unabridged(t) {
				return
			}
			disttest.OnEach(t, machines, 2, func(t *testing.T, launch disttest.Launcher) { disttest.SteadySteps(t, launch, 12, 4, step) })
		})
	}
}

func TestLongSteadySteps(t *testing.T) { reliability.AsLong(t, TestSteadySteps) }

// stepper returns a whole training step of two microbatches.
func stepper(r *dist.Rank, cfg ddp.Config) (func() error, error) {
	model := mlp()
	params, err := ddp.Attach(r.World, model, cfg)
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
	tape := tensor.NewTape(r.Device)
	x, y := batch(r, tensor.Float32, 100*r.World.Rank(), 16)
	x, y = tensortest.On(r.Device, x).WithRows(r.World.Rows(16*r.World.Rank(), 32)), tensortest.On(r.Device, y)
	return func() error {
		tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y), tensor.More())
		tape.Reset()
		tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
		err := opt.Step()
		tape.Reset()
		return err
	}, err
}

// A loss of the user's own that ends with GlobalMean trains as the built-in one does, on any number of ranks.
func TestGlobalMeanIsMSE(t *testing.T) {
	own := func(x, y tensor.Tensor) tensor.Tensor { return tensor.GlobalMean(x.Sub(y).Square()) }
	want := regress(t, 1, nn.MSE)
	require.Greater(t, want.Losses[0], 2*want.Losses[19], "it trains")
	for _, n := range []int{1, 2, 4} {
		disttest.RequireEqual(t, want, regress(t, n, nn.MSE), 1e-12)
		disttest.RequireEqual(t, want, regress(t, n, own), 1e-12)
	}
}

// regress does 20 steps on the same rows.
func regress(t *testing.T, ranks int, loss func(x, y tensor.Tensor) tensor.Tensor) disttest.Result {
	t.Helper()
	const batch, features = 13, 6
	c := simple(ranks, 20, batch)
	c.Rule = func(p nn.Params, _ optim.Norm) *optim.Optimizer { return optim.NewSGD(p, optim.SGDConfig{LR: 0.5}) }
	c.Attach = func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := nn.Sequential{nn.NewLinear(features, 9), nn.Tanh, nn.NewLinear(9, features)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 3})
		return disttest.Attached{Params: params, Loss: func(b disttest.Batch) nn.T {
			b.First %= batch
			x, _ := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: features})
			return loss(model.Forward(x), x.Sin())
		}}, err
	}
	return c.Run(t)
}

// With scales per row, ranks compute what one rank does. Scales per tensor are those of a rank's rows, and differ.
func TestFloat8EqualsOneRank(t *testing.T) {
	for _, s := range []ops.Float8{ops.PerRow, ops.PerTensor} {
		j := job{training: simple(1, 3, 96), model: func() nn.Layer {
			m := nn.Sequential{nn.NewLinear(19, 32), nn.GELU, nn.NewLinear(32, 48), nn.GELU, nn.NewLinear(48, 5)}
			nn.Float8(m, s, "2")
			return m
		}}
		want := j.run(t)
		for _, j.Ranks = range []int{2, 3} {
			if got := j.run(t); s == ops.PerRow {
				disttest.RequireEqual(t, want, got, 1e-5)
			} else {
				require.ErrorContains(t, got.Differs(want, 1e-4), "parameter")
			}
		}
	}
}
