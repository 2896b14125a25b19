package moe_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// torchRun is what transformers computed in testdata/write.py: of the first step, of each, and after ten steps of AdamW.
type torchRun struct {
	Y      []float64
	Grads  map[string][]float64
	Losses []float64
	After  []float64
}

// inTorch are the configurations of write.py. Mixtral's router is there a softmax over all experts, of which the chosen ones are
// normalized, and equals the softmax of the chosen logits.
var inTorch = []struct {
	run string
	moe.Config
}{
	{"mixtral", moe.Config{Experts: 8, Router: router.Config{Top: 2, Scoring: router.Chosen}}},
	{"mixtral", moe.Config{Experts: 8, Router: router.Config{Top: 2, Normalize: true}}},
	{"balance", moe.Config{Experts: 8, Router: router.Config{Top: 2, Scoring: router.Chosen}, Balance: 0.5}},
	{"z", moe.Config{Experts: 8, Router: router.Config{Top: 2, Scoring: router.Chosen}, Z: 0.25}},
	{"deepseek", moe.Config{Experts: 12, Shared: 10, Router: router.Config{
		Top: 3, Scoring: router.Sigmoid, Bias: true, Groups: 3, TopGroups: 2, Normalize: true, Scale: 2.5}}},
}

// torchValue returns the numbers of write.py's value().
func torchValue(salt int, dims ...int) tensor.Tensor {
	x := tensor.New(cpu.New(1), tensor.Float64, dims...)
	for i := range x.Len() {
		tensor.Data[float64](x)[i] = float64((i*i*31+i*7919+salt*104729)%2003)/1001.5 - 1
	}
	return x
}

// torchLayer returns the layer of write.py's trained(), with its first values.
func torchLayer(c moe.Config) (*moe.Layer, nn.Params) {
	c.Features, c.Hidden = 7, 5
	l := moe.NewLayer(c)
	params := nn.Init(l, cpu.New(1), tensor.Float64, 1).Trainable()
	for salt, p := range params {
		copy(tensor.Data[float64](p.Value), tensor.Data[float64](torchValue(salt, p.Dims()...)))
	}
	if c.Router.Bias {
		for e, v := range tensor.Floats(torchValue(50, c.Experts)) {
			tensor.Data[float64](l.Router.Bias.Value)[e] = v*0.2 - 1.2
		}
	}
	return l, params
}

// TestTorch: from the same weights, the outputs, gradients and ten steps of AdamW are those of transformers, also with the losses of
// the router.
func TestTorch(t *testing.T) {
	var expect map[string]torchRun
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &expect))
	for _, c := range inTorch {
		want := expect[c.run]
		require.Len(t, want.Losses, 10, c.run)
		l, params := torchLayer(c.Config)
		opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.01}), tensor.NewTape(cpu.New(1))
		for step, loss := range want.Losses {
			x := tape.Leaf(torchValue(200+step, 3, 5, 7))
			y := tape.Keep(l.Forward(x))
			got := y.Mul(torchValue(60, 3, 5, 7)).Sum()
			require.InDelta(t, loss, got.Item(), 1e-10, "%s, step %d", c.run, step)
			tape.Backward(got)
			if step == 0 {
				require.InDeltaSlice(t, want.Y, tensor.Floats(y), 1e-12, c.run)
				require.InDeltaSlice(t, want.Grads["x"], tensor.Floats(tape.GradOf(x)), 1e-12, "%s: x", c.run)
				requireGrads(t, want.Grads, params, c.run)
			}
			require.NoError(t, opt.Step())
			tape.Reset()
		}
		require.InDeltaSlice(t, want.After, tensor.Floats(l.Forward(tape.Input(torchValue(200, 3, 5, 7)))), 1e-10, c.run)
		tape.Close()
	}
}

// requireGrads compares the gradients of all parameters.
func requireGrads(t *testing.T, want map[string][]float64, params nn.Params, run string) {
	t.Helper()
	require.Len(t, want, len(params)+1, run) // and that of x
	for _, p := range params {
		require.InDeltaSlice(t, want[p.Name()], tensor.Floats(p.Grad), 1e-12, "%s: %s", run, p.Name())
	}
}
