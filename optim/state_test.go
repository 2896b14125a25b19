package optim_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// snapshot copies a state, as a checkpoint does.
func snapshot(st optim.State) optim.State {
	out := optim.State{Steps: st.Steps, LR: st.LR, Counts: st.Counts}
	for _, x := range st.Tensors {
		c := tensor.New(host, x.Tensor.DType(), x.Tensor.Len())
		copy(c.Bytes(), x.Tensor.Bytes())
		out.Tensors = append(out.Tensors, optim.StateTensor{Name: x.Name, Tensor: c})
	}
	return out
}

func mixed() nn.Params {
	ps := start(tensor.Float32)
	half := one("p3", tensor.BFloat16, value(9, 5), value(10, 5))
	return append(ps, half)
}

// TestResume: a run that was saved and resumed has the same bits as one that was not.
func TestResume(t *testing.T) {
	for name, c := range inTorch {
		t.Run(name, func(t *testing.T) {
			var values [2][]float64
			for run := range values {
				ps := mixed()
				opt := c(ps)
				for step := range 20 {
					if step == 6 {
						opt.SetLR(0.03)
					}
					if step == 8 && run == 1 {
						ps, opt = resume(t, ps, opt, c)
					}
					gradients(ps, step)
					require.NoError(t, opt.Step())
				}
				assert.Equal(t, []float64{20, 0.03}, []float64{float64(opt.Steps()), opt.LR()})
				values[run] = flat(ps)
			}
			assert.Equal(t, values[0], values[1])
		})
	}
}

// resume makes a new optimizer on new parameters with the same values, from the state of opt.
func resume(t *testing.T, ps nn.Params, opt *optim.Optimizer, c func(nn.Params) *optim.Optimizer) (nn.Params, *optim.Optimizer) {
	t.Helper()
	saved := snapshot(opt.State())
	again := mixed()
	for i, p := range again {
		store(p.Value, tensor.Floats(ps[i].Value))
	}
	next := c(again)
	require.NoError(t, next.SetState(saved))
	return again, next
}

func TestStateNames(t *testing.T) {
	names := func(o *optim.Optimizer) (s []string) {
		for _, x := range o.State().Tensors {
			s = append(s, x.Name)
			assert.Equal(t, x.Param.Local.Len(), x.Tensor.Len())
		}
		return s
	}
	assert.Equal(t, []string{"p0.exp_avg", "p0.exp_avg_sq", "p1.exp_avg", "p1.exp_avg_sq", "p2.exp_avg",
		"p2.exp_avg_sq", "p3.exp_avg", "p3.exp_avg_sq", "p3.master"}, names(optim.NewAdam(mixed(), optim.AdamConfig{})))
	assert.Equal(t, []string{"p3.master"}, names(optim.NewSGD(mixed(), optim.SGDConfig{LR: 1e-3})))
	sgd := optim.NewSGD(mixed()[:1], optim.SGDConfig{LR: 1e-3, Momentum: 0.5})
	assert.Equal(t, []string{"p0.momentum_buffer"}, names(sgd))
	assert.Equal(t, map[string]int{"p0": 0}, sgd.State().Counts)
}

func TestStateOfFreshMaster(t *testing.T) {
	p := one("p", tensor.BFloat16, []float64{3}, []float64{1})
	st := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1e-3}).State()
	assert.Equal(t, 3.0, st.Tensors[0].Tensor.Item())
}

// What State returned is no copy: to set it after steps would restore nothing.
func TestSetStateOfItsOwn(t *testing.T) {
	ps := start(tensor.Float64)
	opt := optim.NewAdam(ps, optim.AdamConfig{})
	st := opt.State()
	require.NoError(t, opt.SetState(st), "no step since")
	gradients(ps, 0)
	require.NoError(t, opt.Step())
	require.ErrorContains(t, opt.SetState(st), "p0.exp_avg is the optimizer's own memory")
	st = opt.State()
	st.LR = 0.5
	require.NoError(t, opt.SetState(st))
}

func TestSetStateRefuses(t *testing.T) {
	opt := optim.NewAdam(start(tensor.Float64), optim.AdamConfig{})
	st := snapshot(opt.State())
	st.Steps = 5
	delete(st.Counts, "p1")
	st.Counts["p9"] = 3
	st.Tensors[0].Name = "p9.exp_avg"
	st.Tensors[1].Tensor = tensor.New(host, tensor.Float64, 11)
	st.Tensors[2].Tensor = tensor.New(host, tensor.Float32, 3)
	err := opt.SetState(st)
	for _, want := range []string{"no step count for p1", "unknown parameter p9", "no tensor p0.exp_avg",
		"p0.exp_avg_sq is float64[11], not float64[12]", "p1.exp_avg is float32[3], not float64[3]", "unknown tensor p9.exp_avg"} {
		assert.ErrorContains(t, err, want)
	}
	assert.Zero(t, opt.Steps())
}
