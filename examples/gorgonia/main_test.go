package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/gorgonia"
)

func TestLearns(t *testing.T) {
	var out bytes.Buffer
	cfg := dist.Config{Ranks: 1, Exact: true, Log: &out}
	require.NoError(t, dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error { return train(ctx, r, 100) }))
	require.Regexp(t, `^step 0  loss 2\.\d+\nstep 50  loss [01]\.\d+\ntest accuracy (9\d\.\d|100\.0)%\n$`, out.String())
}

// Gorgonia's functions compute the same as the model.
func TestClassify(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	set, err := newArrays(30, 3, gorgonia.NewEngine(host))
	require.NoError(t, err)
	model := nn.Sequential{nn.NewLinear(784, 64), nn.Tanh, nn.NewLinear(64, 10)}
	nn.Init(model, host, tensor.Float32, 1)
	got, err := classify(model, set.x)
	require.NoError(t, err)
	x, err := gorgonia.FromDense(set.x)
	require.NoError(t, err)
	want := tensor.Data[float32](model.Forward(tensor.NewTape(host, tensor.NoGrad()).Input(x)))
	require.InDeltaSlice(t, want, got.Data(), 1e-4)
}
