package optim_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// probed is a parameter of n elements with a gradient in which element i is x·(i+1).
func probed(dev tensor.Device, name string, dtype tensor.DType, n int, x float64) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(1), n)
	p.SetName(name)
	p.Make(dev, dtype, 0)
	g := make([]float64, n)
	for i := range g {
		g[i] = x * float64(i+1)
	}
	p.Grad = tensor.New(p.Value.Device(), dtype, n)
	e := tensor.NewExec(p.Value.Device())
	e.Args(tensor.OpCast, tensor.Float64).Out(p.Grad).In(tensor.FromSlice(g, n))
	e.Launch()
	p.FillGrad()
	return p
}

// read returns the steps in the folder.
func read(t *testing.T, dir string) []grads.Step {
	t.Helper()
	steps, err := grads.Read(dir)
	require.NoError(t, err)
	return steps
}

// What is written is each parameter's norm before clipping and without the loss's scale, in every type, over several blocks, and in the
// order of the model.
func TestGrads(t *testing.T) {
	const long = 2*tensor.SumSquaresBlock + 5
	dir := t.TempDir()
	t.Setenv(grads.Dir, dir)
	host := cpu.New(1)
	a, b := probed(host, "a", tensor.Float32, 3, 4), probed(host, "b", tensor.BFloat16, 2, 8)
	c, none := probed(host, "c", tensor.Float64, long, 1e-3), probed(host, "none", tensor.Float32, 2, 1)
	none.Consume()
	opt := optim.NewSGD(nn.Params{a, b, c, none}, optim.SGDConfig{LR: 1, Clip: 1e-3, Scaler: &optim.Scaler{Scale: 4},
		Groups: []optim.Group{{Match: optim.Only(c)}}})
	require.NoError(t, opt.Step())
	n := float64(long)
	want := []float64{14, 20, 1e-6 / 16 * n * (n + 1) * (2*n + 1) / 6, 0}
	steps := read(t, dir)
	require.Len(t, steps, 1)
	for i, g := range steps[0].Grads {
		assert.Equal(t, []string{"a", "b", "c", "none"}[i], g.Name)
		assert.InEpsilon(t, 1+want[i], 1+g.Norm*g.Norm, 1e-12, g.Name)
	}
	assert.InDelta(t, 14+20+want[2], opt.GradNorm()*opt.GradNorm(), 1e-9*want[2], "clipping is as without it")

	require.NoError(t, os.RemoveAll(dir))
	before := tensor.Floats(a.Local)
	a.FillGrad()
	require.ErrorContains(t, opt.Step(), "RINGO_GRADS: open "+dir)
	assert.Equal(t, before, tensor.Floats(a.Local), "nothing is changed")
}

// RINGO_GRADS_STEPS ends a program by an error, which changes nothing. Two optimizers of a rank are told apart.
func TestGradsSteps(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(grads.Dir, dir)
	t.Setenv(grads.Steps, "2")
	host := cpu.New(1)
	a, b := probed(host, "w", tensor.Float64, 1, 3), probed(host, "w", tensor.Float64, 2, 4)
	first, second := optim.NewSGD(nn.Params{a}, optim.SGDConfig{LR: 1}), optim.NewSGD(nn.Params{b}, optim.SGDConfig{LR: 1})
	for range 2 {
		a.FillGrad()
		require.NoError(t, first.Step())
	}
	require.NoError(t, second.Step())
	a.FillGrad()
	before := a.Value.Item()
	require.ErrorContains(t, first.Step(), "RINGO_GRADS_STEPS=2: this optimizer has done its steps")
	assert.Equal(t, before, a.Value.Item())
	t.Setenv(grads.Steps, "few")
	require.ErrorContains(t, optim.NewSGD(nn.Params{a}, optim.SGDConfig{LR: 1}).Step(), "RINGO_GRADS_STEPS=few: want a number of steps")
	assert.Len(t, read(t, dir), 2)
}

// On a device the norms equal those of the CPU. A replayed step is an error.
func TestGradsOnDevices(t *testing.T) {
	run := func(dev tensor.Device, captured bool) (norms []float64, err error) {
		dir := t.TempDir()
		t.Setenv(grads.Dir, dir)
		model := nn.Sequential{nn.NewLinear(3, 5), nn.Tanh, nn.NewLinear(5, 1)}
		params := nn.Init(model, dev, tensor.Float64, 1)
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(dev)
		defer tape.Close()
		step := func(in ...tensor.Tensor) error {
			tape.Backward(nn.MSE(model.Forward(tape.Input(in[0])), in[1]))
			err := opt.Step()
			tape.Reset()
			return err
		}
		if captured {
			c := capture.New(dev, step)
			defer c.Close()
			step = c.Run
		}
		x, y := tensor.NewParam(tensor.UniformInit(-1, 1), 5, 3), tensor.NewParam(tensor.Constant(1), 5, 1)
		x.Make(dev, tensor.Float64, 2)
		y.Make(dev, tensor.Float64, 2)
		for range 4 {
			if err := step(x.Value, y.Value); err != nil {
				return nil, err
			}
		}
		for _, s := range read(t, dir) {
			for _, g := range s.Grads {
				norms = append(norms, g.Norm)
			}
		}
		return norms, nil
	}
	host := cpu.New(1)
	defer host.Close()
	want, err := run(host, true)
	require.NoError(t, err)
	require.Len(t, want, 4*4)
	emu.Start(t, emu.Config{Lazy: true})
	gpu, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, gpu.Close()) }()
	got, err := run(gpu, false)
	require.NoError(t, err)
	require.InDeltaSlice(t, want, got, 1e-12)
	_, err = run(gpu, true)
	require.ErrorContains(t, err, "RINGO_DEBUG=1 runs each step")
}
