package optim_test

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
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

// Two optimizers with one Scaler: where the first has changed Scale, gradients of the second are others. By turns all is right, also if
// the loss of the first uses parameters of the second that have no gradient of it, as those of a GAN do.
func TestScalerOfTwoOptimizers(t *testing.T) {
	for _, turns := range []bool{true, false} {
		scaler, tape := optim.NewScaler(), tensor.NewTape(host)
		a, b := one("a", tensor.Float32, []float64{1}, []float64{0}), one("b", tensor.Float32, []float64{1}, []float64{0})
		a.Consume()
		b.Consume()
		first := optim.NewSGD(nn.Params{a}, optim.SGDConfig{LR: 1, Scaler: scaler})
		second := optim.NewSGD(nn.Params{b}, optim.SGDConfig{LR: 1, Scaler: scaler})
		backward := func(p *tensor.Param, by float64) {
			loss := tape.Use(p).Mul(tape.Use(b).Detach()).Sum()
			b.Freeze()
			loss = loss.Mul(tape.Use(b).Sum())
			b.Unfreeze()
			tape.Backward(loss.Scale(by), tensor.Scale(scaler.Scale))
			tape.Reset()
		}
		if !turns {
			backward(b, 1)
		}
		backward(a, 1e38) // too large
		require.NoError(t, first.Step())
		require.Equal(t, 32768.0, scaler.Scale)
		if turns {
			backward(b, 1)
			require.NoError(t, second.Step())
			require.Equal(t, 0.0, b.Value.Item())
			scaler.Scale /= 2
			b.FillGrad() // an owner's zeros
			require.NoError(t, second.Step())
		} else {
			require.ErrorContains(t, tensor.Try(func() { _ = second.Step() }), "Scale was 65536 when its gradient was made, and is 32768 now")
		}
	}
}

// A Backward without Scale is told, once for each Scaler; not if the program multiplies the loss itself.
func TestScalerWithoutScale(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	scaler, tape := optim.NewScaler(), tensor.NewTape(host)
	p := one("p", tensor.Float32, []float64{1, 2}, []float64{0, 0})
	p.Consume()
	opt := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1, Scaler: scaler})
	step := func(loss func(x tensor.Tensor) tensor.Tensor, opts ...tensor.BackwardOption) {
		tape.Backward(loss(tape.Use(p)), opts...)
		require.NoError(t, opt.Step())
		tape.Reset()
	}
	step(func(x tensor.Tensor) tensor.Tensor { return x.Sum() }, tensor.Scale(scaler.Scale))
	step(func(x tensor.Tensor) tensor.Tensor { return x.Sum().Scale(scaler.Scale) })
	scale := tensor.FromSlice([]float32{float32(scaler.Scale)}, 1)
	step(func(x tensor.Tensor) tensor.Tensor { return x.Sum(0).Mul(tape.Input(scale)) })
	require.Empty(t, log.String())
	for range 2 {
		step(func(x tensor.Tensor) tensor.Tensor { return x.Sum().Scale(0.5) })
		require.Contains(t, log.String(), "Backward has no Scale, and the Scaler of an optimizer divides the gradient of p by 65536")
		require.Equal(t, 1, strings.Count(log.String(), "no Scale"))
	}
}

// The state of an optimizer before its first step holds the values as masters.
func TestStateHoldsMastersBeforeTheFirstStep(t *testing.T) {
	p := one("p", tensor.BFloat16, []float64{3, 4}, []float64{0, 0})
	st := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1}).State()
	require.Equal(t, "p.master", st.Tensors[len(st.Tensors)-1].Name)
	assert.Equal(t, []float64{3, 4}, tensor.Floats(st.Tensors[len(st.Tensors)-1].Tensor))
}

// pair returns a bfloat16 parameter and a float32 one with the same values and gradients.
func pair(name string, salt, n int) (half, full *tensor.Param) {
	half = one(name, tensor.BFloat16, value(salt, n), value(salt+1, n))
	full = one(name, tensor.Float32, tensor.Floats(half.Value), tensor.Floats(half.Grad))
	return half, full
}

// rounded returns x's elements as bfloat16.
func rounded(x tensor.Tensor) []float64 {
	r := tensor.New(host, tensor.BFloat16, x.Len())
	store(r, tensor.Floats(x))
	return tensor.Floats(r)
}

func TestHalfFollowsItsMaster(t *testing.T) {
	for name, c := range inTorch {
		t.Run(name, func(t *testing.T) {
			var half, full nn.Params
			for i, n := range []int{12, 3, 4} {
				h, f := pair("p"+string(rune('0'+i)), 50+2*i, n)
				half, full = append(half, h), append(full, f)
			}
			a, b := c(half), c(full)
			for range 30 {
				for i := range half {
					half[i].FillGrad()
					full[i].FillGrad()
				}
				require.NoError(t, a.Step())
				require.NoError(t, b.Step())
				require.InDelta(t, b.GradNorm(), a.GradNorm(), 1e-12)
				for i := range half {
					require.Equal(t, rounded(full[i].Value), tensor.Floats(half[i].Value))
				}
			}
		})
	}
}

func TestSmallUpdatesAddUp(t *testing.T) {
	p := one("p", tensor.BFloat16, []float64{1}, []float64{1})
	opt := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1e-4}) // a step is 40 times less than half of the last bit
	for range 1000 {
		p.FillGrad()
		require.NoError(t, opt.Step())
	}
	assert.InDelta(t, 0.9, p.Value.Item(), 0.002)
}

func TestValueLoadedAfterNew(t *testing.T) {
	p := one("p", tensor.BFloat16, []float64{1}, []float64{0.5})
	opt := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1})
	store(p.Value, []float64{8})
	require.NoError(t, opt.Step())
	assert.Equal(t, 7.5, p.Value.Item())
}

func TestGradientOfAnotherType(t *testing.T) {
	p := one("p", tensor.Float32, []float64{1}, []float64{0})
	q := one("q", tensor.BFloat16, []float64{1}, []float64{0})
	opt := optim.NewSGD(nn.Params{p, q}, optim.SGDConfig{LR: 1, Clip: 10})
	p.Grad, q.Grad = q.Grad, p.Grad
	store(p.Grad, []float64{3})
	store(q.Grad, []float64{4})
	require.NoError(t, opt.Step())
	assert.Equal(t, []float64{5, -2, -3}, []float64{opt.GradNorm(), p.Value.Item(), q.Value.Item()})
	wide := one("wide", tensor.Float64, []float64{1}, []float64{0})
	opt = optim.NewSGD(nn.Params{wide}, optim.SGDConfig{LR: 1e-3})
	wide.Grad = p.Grad
	assert.ErrorContains(t, tensor.Try(func() { _ = opt.Step() }), "needs one of its own type")
}
