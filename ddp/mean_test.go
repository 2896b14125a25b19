package ddp_test

import (
	"context"
	"fmt"
	"sync"
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
	require.Greater(t, want[0], 2*want[len(want)-1], "it trains")
	for _, n := range []int{1, 2, 4} {
		require.InDeltaSlice(t, want, regress(t, n, nn.MSE), 1e-12, fmt.Sprint(n, " ranks"))
		require.InDeltaSlice(t, want, regress(t, n, own), 1e-12, fmt.Sprint(n, " ranks"))
	}
}

// regress returns the losses of 20 steps.
func regress(t *testing.T, ranks int, loss func(x, y tensor.Tensor) tensor.Tensor) []float64 {
	t.Helper()
	const batch, features = 13, 6
	losses := make([]float64, 20)
	var mu sync.Mutex
	err := dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(features, 9), nn.Tanh, nn.NewLinear(9, features)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 3})
		if err != nil {
			return err
		}
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.5})
		tape, set := tensor.NewTape(r.Device), disttest.Dataset{DType: tensor.Float64, Features: features}
		for i := range losses {
			part := set.Backward(r, tape, 0, batch, 1, func(x, _ tensor.Tensor) tensor.Tensor { return loss(model.Forward(x), x.Sin()) })
			mu.Lock()
			losses[i] += part
			mu.Unlock()
			if err := opt.Step(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	return losses
}
