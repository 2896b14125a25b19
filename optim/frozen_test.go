package optim_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

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
