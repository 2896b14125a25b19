package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

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
		"schedule": {adam(optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Schedule: optim.Warmup(4, nil)}), "LR is 0.0"},
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
