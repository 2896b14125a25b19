package optim_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// The errors of optim's functions for wrong use.
func TestMisuse(t *testing.T) {
	params := func() nn.Params { return nn.Init(nn.NewLinear(2, 3), host, tensor.Float32, 1) }
	frozen := params()
	for _, p := range frozen {
		p.Freeze()
	}
	sgd := optim.NewSGD(params(), optim.SGDConfig{LR: 1})
	adam := optim.NewAdam(params(), optim.AdamConfig{})
	averaged := optim.NewAdam(params(), optim.AdamConfig{})
	other := optim.NewSGD(nn.Init(nn.NewLinear(2, 4), host, tensor.Float32, 1), optim.SGDConfig{LR: 1, Momentum: 0.9})
	do := func(of, want string, f func()) misuse.Case {
		return misuse.Case{Of: of, Want: want, Do: func() error { f(); return nil }}
	}
	const noneTrain = "optim: no trainable parameters, and no Norm to take part in (a stage of a " +
		"pipeline that is frozen, or has none, has one: Norm: r.World)"
	misuse.Check(t, []misuse.Case{
		do("NewSGD", "optim: SGDConfig.LR is 0, and SGD has no default: set it; to leave parameters as they are, use SetLR(0) or Freeze",
			func() { optim.NewSGD(params(), optim.SGDConfig{}) }),
		do("NewSGD", noneTrain, func() { optim.NewSGD(nil, optim.SGDConfig{LR: 1}) }),
		do("NewSGD", noneTrain, func() { optim.NewSGD(frozen, optim.SGDConfig{LR: 1}) }),
		do("NewSGD", "optim: parameter weight[3 2] was never made: call nn.Init or Attach first",
			func() { optim.NewSGD(nn.ParamsOf(nn.NewLinear(2, 3)), optim.SGDConfig{LR: 1}) }),
		do("NewSGD", "optim: parameter weight[3 2] is given twice, or two have its name",
			func() { optim.NewSGD(append(params(), params()...), optim.SGDConfig{LR: 1}) }),
		do("NewSGD", "optim: Nesterov needs momentum and no dampening",
			func() { optim.NewSGD(params(), optim.SGDConfig{LR: 1, Nesterov: true}) }),
		do("NewSGD", "optim: LR is -1, want 0 or more", func() { optim.NewSGD(params(), optim.SGDConfig{LR: -1}) }),
		do("NewAdam", "optim: Betas [0.9 1] are not in [0,1)", func() { optim.NewAdam(params(), optim.AdamConfig{Betas: [2]float64{0.9, 1}}) }),
		do("NewAdam", "optim: group 0 has no Match", func() { optim.NewAdam(params(), optim.AdamConfig{Groups: []optim.Group{{LRScale: 2}}}) }),
		do("NewAdamW", "optim: Clip is -1, want 0 (no clipping) or more", func() { optim.NewAdamW(params(), optim.AdamWConfig{Clip: -1}) }),
		do("NewAdamW", "optim: WeightDecay is -1, want 0 or more", func() { optim.NewAdamW(params(), optim.AdamWConfig{WeightDecay: -1}) }),
		do("NewMuon", "optim: Momentum 1 is not in (0,1)", func() { optim.NewMuon(params(), optim.MuonConfig{Momentum: 1}) }),
		do("NewAdafactor", "optim: ClipThreshold is 0.5, want 1 or more",
			func() { optim.NewAdafactor(params(), optim.AdafactorConfig{ClipThreshold: 0.5}) }),
		do("NewEMA", "optim: NewEMA: the optimizer is nil", func() { optim.NewEMA(nil, 0.9) }),
		do("NewEMA", "optim: NewEMA: a decay of 1 is not in [0,1)", func() { optim.NewEMA(adam, 1) }),
		do("NewEMA", "optim: NewEMA: the optimizer has averages already", func() { optim.NewEMA(averaged, 0.9); optim.NewEMA(averaged, 0.9) }),
		do("EMA.Use", "optim: EMA.Use before the first step: there are no averages",
			func() { _ = optim.NewEMA(optim.NewAdam(params(), optim.AdamConfig{}), 0.9).Use(nil) }),
		do("Skip", "optim: Nonfinite is Skip(-1), want Skip(1) or more, or Stop",
			func() { optim.NewSGD(params(), optim.SGDConfig{LR: 1, Nonfinite: optim.Skip(-1)}) }),
		do("Optimizer.SetNonfinite", "optim: Nonfinite is Skip(-2), want Skip(1) or more, or Stop", func() { sgd.SetNonfinite(optim.Skip(-2)) }),
		do("Optimizer.SetLR", "optim: LR is -1, want 0 or more", func() { sgd.SetLR(-1) }),
		{Of: "Optimizer.SetState", Want: "optim: the state does not fit: unknown tensor weight.exp_avg\nunknown tensor weight.exp_avg_sq\n" +
			"unknown tensor bias.exp_avg\nunknown tensor bias.exp_avg_sq", Do: func() error { return sgd.SetState(adam.State()) }},
		{Of: "Optimizer.SetState", Want: "optim: the state does not fit: weight.momentum_buffer is float32[8], not float32[6]\n" +
			"bias.momentum_buffer is float32[4], not float32[3]", Do: func() error {
			return optim.NewSGD(params(), optim.SGDConfig{LR: 1, Momentum: 0.9}).SetState(other.State())
		}},
	}, map[string]string{
		"Vectors":               "matches any parameter",
		"Only":                  "matches any parameters",
		"Optimizer.OnNonfinite": "any function",
		"Optimizer.Alike":       "any number and axes",
		"Optimizer.Trace":       "any recorder, also none",
		"Optimizer.RuleOf":      "other parameters have no rule",
		"Optimizer.RateOf":      "other parameters have the rate 0",
		"Optimizer.Reload":      "parameters of another optimizer are not its own",
	})
}
