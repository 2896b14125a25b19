package dist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

type someOwner struct{ tensor.Hooks }

// A gradient of another owner may still be summed, in memory that this one takes away. It is not looked at, whether it is there or not.
func TestSamplesOfItsOwn(t *testing.T) {
	dev, mine, other := cpu.New(1), &someOwner{}, &someOwner{}
	var params []*tensor.Param
	for _, o := range []*someOwner{mine, other, other} {
		p := tensor.NewParam(tensor.Constant(0), 2)
		p.Make(dev, tensor.Float64, 0)
		require.NoError(t, p.Own(o, 0))
		p.Grad = tensor.FromSlice([]float64{1, -2}, 2)
		params = append(params, p)
	}
	params[2].Grad = tensor.FromPtr(dev, nil, tensor.Float64, 2)
	for _, p := range params {
		p.FillGrad()
	}
	var c scaled
	c.sample(mine, params)
	require.Len(t, c.samples, 1)
	require.Equal(t, -2.0, c.samples[0].was)
}
