package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A loss of the user's own that ends with GlobalMean trains as the built-in one does, on any number of ranks.
func TestGlobalMeanIsMSE(t *testing.T) {
	own := func(x, y tensor.Tensor) tensor.Tensor { return tensor.GlobalMean(x.Sub(y).Square()) }
	want := regress(t, 1, nn.MSE)
	require.Greater(t, want.Losses[0], 2*want.Losses[19], "it trains")
	for _, n := range []int{1, 2, 4} {
		disttest.RequireEqual(t, want, regress(t, n, nn.MSE), 1e-12)
		disttest.RequireEqual(t, want, regress(t, n, own), 1e-12)
	}
}

// regress does 20 steps on the same rows.
func regress(t *testing.T, ranks int, loss func(x, y tensor.Tensor) tensor.Tensor) disttest.Result {
	t.Helper()
	const batch, features = 13, 6
	c := simple(ranks, 20, batch)
	c.Rule = func(p nn.Params, _ optim.Norm) *optim.Optimizer { return optim.NewSGD(p, optim.SGDConfig{LR: 0.5}) }
	c.Attach = func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := nn.Sequential{nn.NewLinear(features, 9), nn.Tanh, nn.NewLinear(9, features)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 3})
		return disttest.Attached{Params: params, Loss: func(b disttest.Batch) nn.T {
			b.First %= batch
			x, _ := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: features})
			return loss(model.Forward(x), x.Sin())
		}}, err
	}
	return c.Run(t)
}
