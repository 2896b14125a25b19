package optim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

const globalRows, features, classes = 13, 6, 4

// train makes 12 steps over the same 13 rows, cut into microbatches at the given rows, and returns losses and values.
func train(t *testing.T, cuts ...int) (losses, values []float64) {
	m := nn.Sequential{nn.NewLinear(features, 9), nn.GELU, nn.NewLayerNorm(9), nn.NewLinear(9, classes)}
	ps := nn.Init(m, host, tensor.Float64, 3)
	opt := optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.02, WeightDecay: 0.1, Clip: 0.8})
	tape := tensor.NewTape(host)
	x, y := value(7, globalRows*features), make([]int64, globalRows)
	for i := range y {
		y[i] = int64(i*5) % classes
	}
	cuts = append(append([]int{0}, cuts...), globalRows)
	for range 12 {
		sum := 0.0
		for i, lo := range cuts[:len(cuts)-1] {
			hi := cuts[i+1]
			in := tensor.FromSlice(x[lo*features:hi*features], hi-lo, features)
			in = in.WithRows(tensor.Rows{First: lo, Stride: 1, Total: globalRows})
			loss := tape.Keep(nn.CrossEntropy(m.Forward(tape.Input(in)), tensor.FromSlice(y[lo:hi], hi-lo)))
			if hi < globalRows {
				tape.Backward(loss, tensor.More())
			} else {
				tape.Backward(loss)
			}
			sum += loss.Item()
			tape.Reset()
		}
		require.NoError(t, opt.Step())
		losses = append(losses, sum)
	}
	return losses, flat(ps)
}

// TestMicrobatchesEqualOneBatch: losses are parts of the mean over the global batch, so accumulated gradients are those
// of the whole.
func TestMicrobatchesEqualOneBatch(t *testing.T) {
	losses, values := train(t)
	assert.Less(t, losses[11], 0.9*losses[0])
	for _, cuts := range [][]int{{6}, {1, 2, 12}, {4, 8}} {
		l, v := train(t, cuts...)
		assert.InDeltaSlice(t, losses, l, 1e-12, fmt.Sprint(cuts))
		assert.InDeltaSlice(t, values, v, 1e-12, fmt.Sprint(cuts))
	}
}

// If a parameter was frozen when the optimizer was made, and is unfrozen later, it is an error as soon as it has a gradient. One that is
// frozen later does not change until it is unfrozen.
func TestUnfrozenLater(t *testing.T) {
	a, b := one("a", tensor.Float64, []float64{1}, nil), one("b", tensor.Float64, []float64{1}, nil)
	a.Consume()
	b.Consume()
	b.Freeze()
	opt := optim.NewSGD(nn.Params{a, b}, optim.SGDConfig{LR: 1})
	tape := tensor.NewTape(host)
	step := func() error {
		defer tape.Reset()
		tape.Backward(tape.Use(a).Mul(tape.Input(tensor.FromSlice([]float64{1}, 1))).Add(tape.Use(b)).Sum())
		return opt.Step()
	}
	b.Unfreeze()
	err := tensor.Try(func() { _ = step() })
	assert.ErrorContains(t, err, "optim.Step b float64[1]: it was frozen when the optimizer was made, which has no state for it, "+
		"and unfrozen since: make the optimizer while all that will train is unfrozen, and freeze again afterwards, or make a new one")
	assert.Equal(t, []float64{1, 1}, []float64{a.Value.Item(), b.Value.Item()})
	for _, p := range []*tensor.Param{a, b} {
		p.Consume()
		p.Unfreeze()
	}
	opt = optim.NewSGD(nn.Params{a, b}, optim.SGDConfig{LR: 1})
	require.NoError(t, step())
	b.Freeze()
	require.NoError(t, step())
	assert.Equal(t, []float64{-1, 0}, []float64{a.Value.Item(), b.Value.Item()})
	b.Unfreeze()
	require.NoError(t, step())
	assert.Equal(t, []float64{-2, -1}, []float64{a.Value.Item(), b.Value.Item()})
}
