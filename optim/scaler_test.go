package optim_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A scaled loss gives the same steps, clipped or not.
func TestScalerIsUndone(t *testing.T) {
	for _, clip := range []float64{0, 0.25} {
		a, b := one("p", tensor.Float32, []float64{1, 2}, []float64{0.5, -0.25}), one("p", tensor.Float32, []float64{1, 2}, nil)
		b.Grad = tensor.New(host, tensor.Float32, 2)
		store(b.Grad, []float64{0.5 * 65536, -0.25 * 65536})
		plain := optim.NewAdamW(nn.Params{a}, optim.AdamWConfig{LR: 0.1, Clip: clip})
		scaled := optim.NewAdamW(nn.Params{b}, optim.AdamWConfig{LR: 0.1, Clip: clip, Scaler: optim.NewScaler()})
		for range 3 {
			a.FillGrad()
			b.FillGrad()
			require.NoError(t, plain.Step())
			require.NoError(t, scaled.Step())
		}
		assert.Equal(t, tensor.Floats(a.Value), tensor.Floats(b.Value))
		assert.InDelta(t, math.Hypot(0.5, 0.25), scaled.GradNorm(), 1e-12)
	}
}

// Gradients that are not finite change only the scale, and 2000 good steps double it.
func TestScalerSkipsSteps(t *testing.T) {
	for _, bad := range []float64{math.Inf(-1), math.NaN()} {
		p, scaler := one("p", tensor.Float16, []float64{1, 2}, []float64{bad, 1}), optim.NewScaler()
		opt := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1, Momentum: 0.9, Scaler: scaler})
		before := opt.State()
		p.FillGrad()
		require.NoError(t, opt.Step())
		assert.False(t, p.HasGrad())
		assert.Equal(t, []float64{1, 2}, tensor.Floats(p.Value))
		assert.Equal(t, []float64{0, 0}, tensor.Floats(before.Tensors[0].Tensor))
		assert.Equal(t, optim.Scaler{Scale: 32768}, *scaler)
		assert.Zero(t, opt.Steps())
		store(p.Grad, []float64{0, 32768})
		for i := range 2000 {
			assert.Equal(t, optim.Scaler{Scale: 32768, Good: i}, *scaler)
			p.FillGrad()
			require.NoError(t, opt.Step())
			store(p.Grad, []float64{0, 0})
		}
		assert.Equal(t, optim.Scaler{Scale: 65536}, *scaler)
		assert.Less(t, tensor.Floats(p.Value)[1], 1.0)
	}
}

// The state of an optimizer before its first step holds the values as masters.
func TestStateHoldsMastersBeforeTheFirstStep(t *testing.T) {
	p := one("p", tensor.BFloat16, []float64{3, 4}, []float64{0, 0})
	st := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1}).State()
	require.Equal(t, "p.master", st.Tensors[len(st.Tensors)-1].Name)
	assert.Equal(t, []float64{3, 4}, tensor.Floats(st.Tensors[len(st.Tensors)-1].Tensor))
}
