package autograd_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// pictureNet is a small network with batch norms.
func pictureNet() nn.Sequential {
	return nn.Sequential{nn.NewConv2d(2, 5, 3, tensor.Conv2dOptions{Padding: [2]int{1, 1}}), nn.NewBatchNorm2d(5), nn.ReLU, nn.NewMaxPool2d(2),
		nn.NewConv2d(5, 4, 2, tensor.Conv2dOptions{}), nn.NewBatchNorm2d(4), nn.Tanh, nn.NewDropout2d(0.2), nn.Flatten{}, nn.NewLinear(4*2*3, 3)}
}

// batchNormSteps trains ten steps on batches of 7 pictures, of which ranks have, for example, 4, 0 or 3. It returns losses, then
// parameters and running statistics, and a loss in evaluation.
func batchNormSteps(t *testing.T, ranks int, sync func(g *dist.Group) tensor.Function) (trained []float64, err error) {
	const rows, steps = 7, 10
	shares := map[int][]int{1: {7}, 2: {5, 2}, 3: {4, 0, 3}}[ranks]
	run := func(r *dist.Rank) error {
		first := 0
		for _, n := range shares[:r.World.Rank()] {
			first += n
		}
		n := shares[r.World.Rank()]
		model := pictureNet()
		if sync != nil {
			nn.SyncBatchNorm(model, sync(r.World))
		}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 3})
		if err != nil {
			return err
		}
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
		tape, eval := tensor.NewTape(r.Device, tensor.Seed(5)), tensor.NewTape(r.Device, tensor.NoGrad())
		loss := func(tape *tensor.Tape, step int) tensor.Tensor {
			x, y := tensor.New(r.Device, tensor.Float64, n, 2, 6, 8), make([]int64, n)
			tensor.NormalInit(1, 2).Fill(x, uint64(step), uint64(first*2*6*8))
			for i := range y {
				y[i] = int64((first + i + step) % 3)
			}
			return nn.CrossEntropy(model.Forward(tape.Input(x.WithRows(r.World.Rows(first, rows)))), tensor.FromSlice(y, n))
		}
		sums := make([]float64, steps+1)
		for step := range steps {
			l := loss(tape, step)
			sums[step] = l.Item()
			tape.Backward(l)
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		sums[steps] = loss(eval, steps).Item()
		if err := r.World.SumFloats(sums); err != nil {
			return err
		}
		if r.World.Rank() == 0 {
			for trained = sums; len(params) > 0; params = params[1:] {
				trained = append(trained, tensor.Floats(params[0].Value)...)
			}
		}
		return nil
	}
	return trained, dist.Run(t.Context(), dist.Config{Ranks: ranks, Exact: true}, func(_ context.Context, r *dist.Rank) error { return run(r) })
}

func allReduce(g *dist.Group) tensor.Function { return &autograd.AllReduce{Group: g} }

// With synchronized batch norms, uneven ranks train as one rank: losses, parameters and running statistics are equal.
func TestSyncBatchNormEqualsOneRank(t *testing.T) {
	want, err := batchNormSteps(t, 1, nil)
	require.NoError(t, err)
	for ranks := 1; ranks <= 3; ranks++ {
		got, err := batchNormSteps(t, ranks, allReduce)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-10, "element %d with %d ranks", i, ranks)
		}
	}
}

// Batch norms with the statistics of only a rank's own rows are refused, and so are sums whose gradient is not summed.
func TestWrongBatchNormIsRefused(t *testing.T) {
	for want, sync := range map[string]func(g *dist.Group) tensor.Function{
		"SyncBatchNorm":            nil,
		"autograd.Copy":            func(g *dist.Group) tensor.Function { return &autograd.Copy{Group: g} },
		"counts its gradient once": func(g *dist.Group) tensor.Function { return &autograd.Sum{Group: g} },
	} {
		t.Run(want, func(t *testing.T) {
			_, err := batchNormSteps(t, 2, sync)
			assert.ErrorContains(t, err, want, fmt.Sprint(err))
		})
	}
}
