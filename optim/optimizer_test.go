package optim_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
)

// one returns a parameter with the given values and gradient.
func one(name string, d tensor.DType, v, g []float64) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(0), len(v))
	p.SetName(name)
	p.Make(host, d, 0)
	store(p.Value, v)
	p.Grad = tensor.New(host, d, len(v))
	store(p.Grad, g)
	p.FillGrad()
	return p
}

func TestStepUsesGradientsUp(t *testing.T) {
	a, b := one("a", tensor.Float64, []float64{1}, []float64{2}), one("b", tensor.Float64, []float64{1}, []float64{2})
	b.Consume() // no gradient
	opt := optim.NewAdamW(nn.Params{a, b}, optim.AdamWConfig{LR: 0.1, WeightDecay: 0.5})
	require.NoError(t, opt.Step())
	assert.False(t, a.HasGrad())
	assert.NotEqual(t, 1.0, a.Value.Item())
	assert.Equal(t, 1.0, b.Value.Item(), "without a gradient, not even weight decay acts")
	before := a.Value.Item()
	require.NoError(t, opt.Step())
	assert.Equal(t, before, a.Value.Item())
	assert.Equal(t, 2, opt.Steps())
}

func TestFrozenAndBuffersAreLeftOut(t *testing.T) {
	a, b := one("a", tensor.Float64, []float64{1}, []float64{2}), one("b", tensor.Float64, []float64{1}, []float64{2})
	b.Freeze()
	buf := tensor.NewBuffer(tensor.Constant(1), 1) // never made
	opt := optim.NewSGD(nn.Params{a, b, &buf.Param}, optim.SGDConfig{LR: 0.5})
	require.NoError(t, opt.Step())
	assert.Equal(t, []float64{0, 1}, []float64{a.Value.Item(), b.Value.Item()})
}

func TestGroups(t *testing.T) {
	w := tensor.NewParam(tensor.Constant(1), 1, 1)
	w.SetName("w")
	w.Make(host, tensor.Float64, 0)
	w.Grad = tensor.New(host, tensor.Float64, 1, 1)
	w.FillGrad()
	b, c := one("b", tensor.Float64, []float64{1}, []float64{1}), one("c", tensor.Float64, []float64{1}, []float64{1})
	opt := optim.NewSGD(nn.Params{b, w, c}, optim.SGDConfig{LR: 0.1, WeightDecay: 0.5, Groups: []optim.Group{
		{Match: optim.Only(c), LRScale: 3, WeightDecay: 1}, {Match: optim.Vectors}}})
	require.NoError(t, opt.Step())
	assert.InDelta(t, 1-0.1*0.5, w.Value.Item(), 1e-15, "decay only")
	assert.InDelta(t, 1-0.1, b.Value.Item(), 1e-15, "no decay")
	assert.InDelta(t, 1-0.3*2, c.Value.Item(), 1e-15, "the first matching group applies")
}

func TestScheduleAndLR(t *testing.T) {
	a := one("a", tensor.Float64, []float64{0}, []float64{1})
	opt := optim.NewSGD(nn.Params{a}, optim.SGDConfig{LR: 8, Schedule: schedule.Warmup(4, schedule.StepDecay(1, 0.5))})
	var rates []float64
	for range 6 {
		rates = append(rates, opt.LR())
		before := a.Value.Item()
		a.FillGrad()
		require.NoError(t, opt.Step())
		assert.Equal(t, rates[len(rates)-1], before-a.Value.Item())
	}
	assert.Equal(t, []float64{2, 4, 6, 8, 8, 4}, rates)
	opt.SetLR(80)
	assert.Equal(t, 20.0, opt.LR())
	assert.Equal(t, 1.0, schedule.Warmup(3, nil)(5))
}

// noDevice is a Norm that does not say on which device its rank is.
type noDevice struct{ optim.Norm }

func TestConfigMisuse(t *testing.T) {
	ps := start(tensor.Float32)
	raw := tensor.NewParam(tensor.Constant(0), 2)
	raw.SetName("raw")
	for want, f := range map[string]func(){
		"SGDConfig.LR is 0":         func() { optim.NewSGD(ps, optim.SGDConfig{Momentum: 0.9}) },
		"LR is -1":                  func() { optim.NewSGD(ps, optim.SGDConfig{LR: -1}) },
		"LR is NaN":                 func() { optim.NewSGD(ps, optim.SGDConfig{LR: math.NaN()}) },
		"LR is +Inf":                func() { optim.NewSGD(ps, optim.SGDConfig{LR: math.Inf(1)}) },
		"Dampening is NaN":          func() { optim.NewSGD(ps, optim.SGDConfig{LR: 1e-3, Momentum: 1, Dampening: math.NaN()}) },
		"WeightDecay is -1":         func() { optim.NewAdam(ps, optim.AdamConfig{WeightDecay: -1}) },
		"Clip is -1":                func() { optim.NewAdamW(ps, optim.AdamWConfig{Clip: -1}) },
		"Momentum is -1":            func() { optim.NewSGD(ps, optim.SGDConfig{LR: 1e-3, Momentum: -1}) },
		"Nesterov needs":            func() { optim.NewSGD(ps, optim.SGDConfig{LR: 1e-3, Nesterov: true}) },
		"not in [0,1)":              func() { optim.NewAdam(ps, optim.AdamConfig{Betas: [2]float64{0.9, 1}}) },
		"Eps is -1":                 func() { optim.NewAdam(ps, optim.AdamConfig{Eps: -1}) },
		"group 0 has no Match":      func() { optim.NewSGD(ps, optim.SGDConfig{LR: 1e-3, Groups: make([]optim.Group, 1)}) },
		"no trainable parameters":   func() { optim.NewSGD(nil, optim.SGDConfig{LR: 1e-3}) },
		"and no Norm to take part":  func() { optim.NewSGD(nil, optim.SGDConfig{LR: 1e-3, Norm: noDevice{}}) },
		"raw[2] was never made":     func() { optim.NewSGD(nn.Params{raw}, optim.SGDConfig{LR: 1e-3}) },
		"p0[4 3] is given twice":    func() { optim.NewSGD(append(ps, ps[0]), optim.SGDConfig{LR: 1e-3}) },
		"Cosine needs at least one": func() { schedule.Cosine(0, 0) },
	} {
		err := tensor.Try(f)
		var failure *tensor.Failure
		require.ErrorAs(t, err, &failure, want)
		assert.ErrorContains(t, err, want)
	}
}

func TestGradientOfAnotherShape(t *testing.T) {
	a := one("a", tensor.Float64, []float64{1, 2}, []float64{3, 4})
	opt := optim.NewSGD(nn.Params{a}, optim.SGDConfig{LR: 1e-3})
	a.Grad = tensor.New(host, tensor.Float64, 3)
	err := tensor.Try(func() { _ = opt.Step() })
	assert.ErrorContains(t, err, "optim.Step a float64[2], float64[3]")
	assert.Equal(t, []float64{1, 2}, tensor.Floats(a.Value))
}

func TestNormWithoutClipping(t *testing.T) {
	a := one("a", tensor.Float64, []float64{0}, []float64{3})
	b := one("b", tensor.Float32, []float64{0}, []float64{4})
	opt := optim.NewSGD(nn.Params{a, b}, optim.SGDConfig{LR: 1, Clip: math.Inf(1)})
	require.NoError(t, opt.Step())
	assert.Equal(t, []float64{5, -3, -4}, []float64{opt.GradNorm(), a.Value.Item(), b.Value.Item()})
}

type brokenNorm struct{ err error }

func (n brokenNorm) SumFloats([]float64) error { return n.err }
func (brokenNorm) Rank() int                   { return 0 }
func (brokenNorm) Size() int                   { return 1 }

func TestNormErrorChangesNothing(t *testing.T) {
	ps := start(tensor.Float64)
	cause := errors.New("peer is gone")
	opt := optim.NewAdam(ps, optim.AdamConfig{Clip: 1, Norm: brokenNorm{cause}})
	gradients(ps, 1)
	before := flat(ps)
	assert.ErrorIs(t, opt.Step(), cause)
	assert.Equal(t, before, flat(ps))
	assert.True(t, ps[0].HasGrad())
	assert.Zero(t, opt.Steps())
}

func TestStepAllocatesNothing(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("the checks of debug mode allocate")
	}
	for name, build := range map[string]func(ps nn.Params) *optim.Optimizer{
		"sgd": func(ps nn.Params) *optim.Optimizer {
			return optim.NewSGD(ps, optim.SGDConfig{LR: 1e-3, Momentum: 0.9, Clip: 1})
		},
		"adamw": func(ps nn.Params) *optim.Optimizer {
			return optim.NewAdamW(ps, optim.AdamWConfig{Clip: 1, Norm: numbered{&ranks{n: 1}, 0}})
		},
	} {
		ps := nn.Params{one("a", tensor.Float32, value(1, 40), value(2, 40)), one("b", tensor.BFloat16, value(3, 9), value(4, 9)),
			one("c", tensor.Float64, value(5, 7), value(6, 7)), one("d", tensor.Float32, nil, nil)}
		ps[3].Local = tensor.FromPtr(host, nil, tensor.Float32, 0) // an empty shard
		ps[3].Grad = ps[3].Local
		opt := build(ps)
		step := func() {
			for _, p := range ps {
				p.FillGrad()
			}
			if err := opt.Step(); err != nil {
				panic(err)
			}
		}
		step()
		assert.Zero(t, testing.AllocsPerRun(20, step), name)
	}
}

// A step changes values: a Backward of what was computed with the old ones is an error.
func TestStepChangesValues(t *testing.T) {
	p := one("p", tensor.Float64, []float64{3}, nil)
	p.Consume()
	opt := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1})
	early, tape := tensor.NewTape(host), tensor.NewTape(host)
	loss := early.Use(p).Square().Sum()
	tape.Backward(tape.Use(p).Sum())
	require.NoError(t, opt.Step())
	assert.ErrorContains(t, tensor.Try(func() { early.Backward(loss) }), "p was changed (by an optimizer's step")
}
