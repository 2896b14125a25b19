package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// onCopies trains two layers, a unit each, on two copies of two parts. before is called at the beginning of each of four steps and
// returns how many rows in two microbatches this rank has, from which on, and the total.
func onCopies(every, stage int, before func(rank, step int, params nn.Params) (first, n, total int)) error {
	return disttest.OnRanks(4, func(r *dist.Rank) error {
		mesh := disttest.Must(r.Mesh("dp=2,fsdp=2"))
		m := nn.Sequential{nn.NewLinear(3, 4), nn.NewLinear(4, 2)}
		s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp"), Stage: stage, CheckEvery: every})
		s.Unit(m[0])
		s.Unit(m[1])
		params := disttest.Must(s.Attach(m))
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
		for step := range 4 {
			first, n, total := before(r.World.Rank(), step, params)
			disttest.OK(tensor.Try(func() {
				for micro := range 2 {
					x := tensor.New(r.Device, tensor.Float32, n, 3).WithRows(r.World.Rows(micro*total/2+first, total))
					loss := tensor.GlobalMean(m.Forward(tape.Input(x)))
					if micro == 0 {
						tape.Backward(loss, tensor.More())
					} else {
						tape.Backward(loss)
					}
					tape.Reset()
				}
			}))
			disttest.OK(opt.Step())
		}
		return nil
	})
}

// Rows.Total that is not what ranks have together, over parts and copies, is refused in the first step.
func TestRowsOfTheFirstStep(t *testing.T) {
	rows := func(rank int) (first, n int) { return []int{0, 0, 3, 4}[rank], []int{0, 3, 1, 2}[rank] }
	right := func(rank, _ int, _ nn.Params) (int, int, int) {
		first, n := rows(rank)
		return first, n, 12
	}
	wrong := func(rank, step int, params nn.Params) (int, int, int) {
		first, n, total := right(rank, step, params)
		return first, n, total + 2
	}
	for stage := 1; stage <= 3; stage++ {
		require.NoError(t, onCopies(0, stage, right))
		require.ErrorContains(t, onCopies(0, stage, wrong),
			"fsdp: the rows of a step do not add up: rank 0 has 0 of 14, rank 1 has 6 of 14, rank 2 has 2 of 14, rank 3 has 4 of 14")
	}
}

// What one copy of a part has and the other one has not is found in steps 0, 1, 4 and so on, and in others with CheckEvery.
func TestCopiesThatDiffer(t *testing.T) {
	for _, c := range []struct {
		every, step int
		want        string
	}{
		{0, 0, "fsdp: 1.weight must have the same values on all ranks of dp control, and those of rank 2 are not rank 0's"},
		{0, 1, "fsdp: 1.weight must have the same values"}, {0, 2, ""}, {2, 1, "fsdp: 1.weight must have the same values"}, {2, 3, ""},
		{3, 2, "fsdp: 1.weight must have the same values"},
	} {
		err := onCopies(c.every, 3, func(rank, step int, params nn.Params) (int, int, int) {
			if p := params.ByName("1.weight"); step == c.step && rank == 2 {
				tensor.Data[float32](p.Local)[0] += 1e-5
			}
			return rank, 1, 8
		})
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// Layers that compute something else on one rank are refused: the parameters' shapes do not tell.
func TestLayersThatDiffer(t *testing.T) {
	err := disttest.OnRanks(4, func(r *dist.Rank) error {
		mesh := disttest.Must(r.Mesh("dp=2,fsdp=2"))
		m := nn.Sequential{nn.NewLinear(16, 32), nn.NewLinear(32, 16)}
		if r.World.Rank() == 3 {
			nn.Float8(m, ops.PerRow, "1")
		}
		s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp")})
		s.Unit(m)
		_, err := s.Attach(m)
		return err
	})
	require.ErrorContains(t, err, "1: Float8=2")
	require.ErrorContains(t, err, "rank 3")
}

// Each rank updates its own part of a parameter, so nothing shows that the optimizer of one is set differently: they compare it.
func TestOptimizersAreTheSame(t *testing.T) {
	adam := func(c optim.AdamWConfig) func(nn.Params) *optim.Optimizer {
		return func(ps nn.Params) *optim.Optimizer { return optim.NewAdamW(ps, c) }
	}
	for name, c := range map[string]struct {
		other func(nn.Params) *optim.Optimizer
		want  string
	}{
		"same":     {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1}), ""},
		"rate":     {adam(optim.AdamWConfig{LR: 0.02, WeightDecay: 0.1}), "LR is 0.0"},
		"schedule": {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Schedule: schedule.Warmup(4, nil)}), "LR is 0.0"},
		"decay":    {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.2}), "parameters by LRScale and WeightDecay is map["},
		"groups": {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Groups: []optim.Group{{Match: optim.Vectors}}}),
			"parameters by LRScale and WeightDecay is map["},
		"betas": {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Betas: [2]float64{0.9, 0.95}}), "rule is adam {beta1:0.9 "},
		"eps":   {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Eps: 1e-6}), "rule is adam {"},
		"L2": {func(ps nn.Params) *optim.Optimizer {
			return optim.NewAdam(ps, optim.AdamConfig{LR: 0.01, WeightDecay: 0.1})
		}, "rule is adam {"},
		"sgd": {func(ps nn.Params) *optim.Optimizer {
			return optim.NewSGD(ps, optim.SGDConfig{LR: 0.01, WeightDecay: 0.1})
		}, "rule is "},
		"clip":   {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 1, Norm: discard{}}), "Clip is "},
		"scaler": {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Scaler: optim.NewScaler(), Norm: discard{}}), "Scaler is "},
	} {
		for _, stage := range []int{1, 3} {
			failed := make([]error, 3)
			require.NoError(t, disttest.OnRanks(3, func(r *dist.Rank) error {
				m := nn.NewLinear(4, 5)
				s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64, Stage: stage})
				s.Keep(m)
				params := disttest.Must(s.Attach(m))
				opt := adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1})(params)
				if r.World.Rank() == 1 {
					opt = c.other(params)
				}
				tape := tensor.NewTape(r.Device)
				tape.Backward(m.Forward(tape.Input(tensor.New(r.Device, tensor.Float64, 1, 4).WithRows(r.World.Rows(r.World.Rank(), 3)))).Sum())
				failed[r.World.Rank()] = opt.Step()
				return nil
			}), name)
			for rank, err := range failed {
				if c.want == "" {
					require.NoError(t, err, "%s on rank %d", name, rank)
					continue
				}
				require.ErrorContains(t, err, "optim: ranks that share parameters have different optimizers: "+c.want, "%s on rank %d", name, rank)
				require.ErrorContains(t, err, " here, but not on all of the 3 ranks")
			}
		}
	}
}

// discard is a Norm that is never used.
type discard struct{}

func (discard) SumFloats([]float64) error { panic("a norm before settings were compared") }
func (discard) Rank() int                 { return 0 }
func (discard) Size() int                 { return 1 }

// What each function of fsdp says when it is used wrong.
func TestMisuse(t *testing.T) {
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		good := fsdp.Config{Shard: r.World, Stage: 3}
		mine := fsdp.New(good)
		attached := nn.NewLinear(2, 3)
		mine.Unit(attached)
		disttest.Must(mine.Attach(attached))
		attach := func(c fsdp.Config, model any) func() error {
			return func() error { _, err := fsdp.New(c).Attach(model); return err }
		}
		naive := func(c fsdp.Config, model any) func() error {
			return func() error { _, err := fsdp.Naive(model, c); return err }
		}
		stranger := nn.NewLinear(2, 3)
		// with attaches a model of two layers, of which the second is a unit.
		with := func(set func(s *fsdp.Sharding, first *nn.Linear)) func() error {
			return func() error {
				s, first, second := fsdp.New(good), nn.NewLinear(2, 3), nn.NewLinear(3, 2)
				s.Unit(second)
				set(s, first)
				_, err := s.Attach(nn.Sequential{first, second})
				return err
			}
		}
		own := fsdp.Config{Shard: r.World.With(dist.Name("own")), Stage: 3} // which fails
		const one = "a layer belongs in one, as what is tied: Keep what is in none"
		misuse.Check(t, []misuse.Case{
			{Of: "New", Want: "fsdp: Config.Shard is not set", Do: attach(fsdp.Config{}, stranger)},
			{Of: "New", Want: "fsdp: Config.Stage is 4, not 1, 2 or 3", Do: attach(fsdp.Config{Shard: r.World, Stage: 4}, stranger)},
			{Of: "New", Want: "fsdp: Config.DType is bfloat16, not float32 or float64 (see Compute)",
				Do: attach(fsdp.Config{Shard: r.World, Stage: 3, DType: tensor.BFloat16}, stranger)},
			{Of: "New", Want: "fsdp: types Compute=int64 and Reduce=float32 must each be float32 or a 16-bit float type",
				Do: attach(fsdp.Config{Shard: r.World, Stage: 3, Compute: tensor.Int64}, stranger)},
			{Of: "Sharding.Attach", Want: "fsdp: no parameters in a model of type nn.Sequential: a rank of a pipeline that has none does not call " +
				"Attach", Do: attach(good, nn.Sequential{nn.ReLU})},
			{Of: "Sharding.Attach", Want: "fsdp: Attach was called before", Do: func() error { _, err := mine.Attach(stranger); return err }},
			{Of: "Sharding.Attach", Want: "fsdp: 0.weight is in no unit\nfsdp: 0.bias is in no unit", Do: with(func(*fsdp.Sharding, *nn.Linear) {})},
			{Of: "Sharding.Unit", Want: "fsdp: a parameter[3 2] in unit 1 is not in the model\nfsdp: a parameter[3] in unit 1 is not in the model",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first, stranger) })},
			{Of: "Sharding.Unit", Want: "fsdp: unit 2 has no parameters",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first); s.Unit() })},
			{Of: "Sharding.Unit", Want: "fsdp: 0.weight is in units 1 and 2; " + one + "\nfsdp: 0.bias is in units 1 and 2; " + one,
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first); s.Unit(first) })},
			{Of: "Sharding.Keep", Want: "fsdp: a parameter[3 2] in unit 2 is not in the model\nfsdp: a parameter[3] in unit 2 is not in the model",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Keep(first); s.Keep(stranger) })},
			{Of: "Sharding.Ignore", Want: "fsdp: 0.weight is in unit 1, and ignored\nfsdp: 0.bias is in unit 1, and ignored",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first); s.Ignore(first) })},
			{Of: "Unit.Over", Want: "fsdp: Unit.Over: the group of the ranks that share the unit is nil",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first).Over(nil, nil) })},
			{Of: "Unit.Types", Want: "fsdp: unit 1: types Compute=int64 and Reduce=float32 must each be float32 or a 16-bit float type",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first).Types(tensor.Int64, tensor.Float32) })},
			{Of: "Sharding.Full", Want: "fsdp: a parameter[3 2] was never made", Do: func() error { _, err := mine.Full(stranger.W); return err }},
			{Of: "Sharding.SumTensor", Want: "rank 0: allreduce seq 1 of group own: output is the zero Tensor",
				Do: func() error { return fsdp.New(own).SumTensor(tensor.Tensor{}) }},
			{Of: "Naive", Want: "fsdp: Config.Shard is not set", Do: naive(fsdp.Config{}, stranger)},
			{Of: "Naive", Want: "fsdp: no parameters in a model of type nn.Sequential", Do: naive(good, nn.Sequential{nn.ReLU})},
		}, map[string]string{
			"Sharding.SumFloats":     "adds up any numbers",
			"Sharding.BeforeUse":     "the tape calls it",
			"Sharding.BackwardBegin": "the tape calls it",
			"Sharding.GradReady":     "the tape calls it",
			"Sharding.BackwardDone":  "the tape calls it",
			"Sharding.Changed":       "Param.Changed calls it",
		})
		return nil
	}))
}
