package optim_test

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// run holds PyTorch's results in testdata/optim.json: the parameters after some steps, and the gradients' norms.
type run struct {
	Params map[string][]float64 `json:"params"`
	Norms  []float64            `json:"norms"`
}

type fixture struct {
	Sets     map[string]map[string]run `json:"sets"`
	Averages map[string]map[string]run `json:"averages"` // by decay, of adamw
}

func loadFixture(t *testing.T) (f fixture) {
	t.Helper()
	b, err := os.ReadFile("testdata/optim.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &f))
	return f
}

var host = cpu.New(2)

// value returns the numbers of gen.py's value().
func value(salt, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1
	}
	return v
}

// store writes v into x, rounded to its type.
func store(x tensor.Tensor, v []float64) {
	switch x.DType() {
	case tensor.Float64:
		copy(tensor.Data[float64](x), v)
	case tensor.Float32:
		for i := range v {
			tensor.Data[float32](x)[i] = float32(v[i])
		}
	case tensor.Float16:
		for i := range v {
			tensor.Data[tensor.F16](x)[i] = tensor.ToF16(float32(v[i]))
		}
	default:
		for i := range v {
			tensor.Data[tensor.BF16](x)[i] = tensor.ToBF16(float32(v[i]))
		}
	}
}

// start returns gen.py's parameters with their initial values.
func start(d tensor.DType) nn.Params {
	var ps nn.Params
	for i, dims := range [][]int{{4, 3}, {3}, {2, 2}} {
		p := tensor.NewParam(tensor.Constant(0), dims...)
		p.SetName("p" + strconv.Itoa(i))
		p.Make(host, d, 0)
		p.Grad = tensor.New(host, d, dims...)
		store(p.Value, value(i, p.Len()))
		ps = append(ps, p)
	}
	return ps
}

// gradients writes gen.py's gradients of a step. The last parameter has none in every third step.
func gradients(ps nn.Params, step int) {
	for i, p := range ps {
		if i == len(ps)-1 && step%3 == 0 {
			continue
		}
		v, x := value(1000+10*step+i, p.Len()), tensor.Floats(p.Value)
		for j := range v {
			if p.Value.DType() == tensor.Float32 {
				v[j] = float64(float32(v[j]) + float32(x[j])/8)
			} else {
				v[j] += x[j] / 8
			}
		}
		store(p.Grad, v)
		p.FillGrad()
	}
}

func flat(ps nn.Params) (v []float64) {
	for _, p := range ps {
		v = append(v, tensor.Floats(p.Value)...)
	}
	return v
}

// inTorch has the configuration of each of gen.py's runs.
var inTorch = map[string]func(ps nn.Params) *optim.Optimizer{
	"sgd": func(ps nn.Params) *optim.Optimizer { return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1}) },
	"sgd_decay": func(ps nn.Params) *optim.Optimizer {
		return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1, WeightDecay: 0.05})
	},
	"sgd_clip": func(ps nn.Params) *optim.Optimizer { return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1, Clip: 0.9}) },
	"sgd_momentum": func(ps nn.Params) *optim.Optimizer {
		return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	},
	"sgd_dampening": func(ps nn.Params) *optim.Optimizer {
		return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1, Momentum: 0.8, Dampening: 0.3, WeightDecay: 0.01})
	},
	"sgd_nesterov": func(ps nn.Params) *optim.Optimizer {
		return optim.NewSGD(ps, optim.SGDConfig{LR: 0.05, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01})
	},
	"adam": func(ps nn.Params) *optim.Optimizer { return optim.NewAdam(ps, optim.AdamConfig{LR: 0.01}) },
	"adam_decay": func(ps nn.Params) *optim.Optimizer {
		return optim.NewAdam(ps, optim.AdamConfig{LR: 0.02, Betas: [2]float64{0.8, 0.95}, Eps: 1e-3, WeightDecay: 0.1})
	},
	"adam_beta": func(ps nn.Params) *optim.Optimizer {
		return optim.NewAdam(ps, optim.AdamConfig{LR: 0.02, Betas: [2]float64{0, 0.9}})
	},
	"adamw": func(ps nn.Params) *optim.Optimizer {
		return optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.01})
	},
	"adamw_clip": func(ps nn.Params) *optim.Optimizer {
		return optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.01, Clip: 2.2})
	},
	"adamw_groups": func(ps nn.Params) *optim.Optimizer {
		return optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.02, Betas: [2]float64{0.9, 0.95}, Eps: 1e-6, WeightDecay: 0.1,
			Groups: []optim.Group{{Match: optim.Only(ps[1]), LRScale: 0.1}}})
	},
}

func TestOptimizersMatchTorch(t *testing.T) {
	f := loadFixture(t)
	require.Len(t, f.Sets, len(inTorch))
	for name, byType := range f.Sets {
		for dtype, want := range byType {
			t.Run(name+"/"+dtype, func(t *testing.T) {
				d, err := tensor.ParseDType(dtype)
				require.NoError(t, err)
				ps := start(d)
				follow(t, ps, inTorch[name](ps), want, d)
			})
		}
	}
}

// follow does 20 steps and compares them with PyTorch's.
func follow(t *testing.T, ps nn.Params, opt *optim.Optimizer, want run, d tensor.DType) {
	t.Helper()
	tol := map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 2e-6}[d]
	for step := range 20 {
		gradients(ps, step)
		require.NoError(t, opt.Step())
		if want.Norms != nil {
			require.InDelta(t, want.Norms[step], opt.GradNorm(), 1e-12)
		}
		if v, ok := want.Params[strconv.Itoa(step+1)]; ok {
			require.InDeltaSlice(t, v, flat(ps), tol, "after step %d", step+1)
			delete(want.Params, strconv.Itoa(step+1))
		}
	}
	assert.Empty(t, want.Params)
}

// A parameter's rate is that of its group, and of a step.
func TestRateOf(t *testing.T) {
	one := tensor.Constant(1)
	w, b, idle := tensor.NewParam(one, 2, 2), tensor.NewParam(one, 2), tensor.NewParam(one, 2)
	params := nn.Params{w, b, idle}
	for i, name := range []string{"w", "b", "idle"} {
		params[i].SetName(name)
		params[i].Make(host, tensor.Float64, 0)
	}
	idle.Freeze()
	o := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.5, Schedule: schedule.Linear(0.5, 1, 4),
		Groups: []optim.Group{{Match: optim.Vectors, LRScale: 0.1}}})
	assert.Equal(t, []float64{0.25, 0.025, 0}, []float64{o.RateOf(w), o.RateOf(b), o.RateOf(idle)})
}
