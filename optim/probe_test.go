package optim_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// probed is a parameter of n elements with a gradient in which element i is x·(i+1).
func probed(name string, dtype tensor.DType, n int, x float64) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(1), n)
	p.SetName(name)
	p.Make(tensor.NewCPU(1), dtype, 0)
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

// The probe gets each parameter's sum before clipping and without the loss's scale, in every type, over several blocks, and in groups.
func TestProbe(t *testing.T) {
	const long = 2*tensor.SumSquaresBlock + 5
	a, b := probed("a", tensor.Float32, 3, 4), probed("b", tensor.BFloat16, 2, 8)
	c, none := probed("c", tensor.Float64, long, 1e-3), probed("none", tensor.Float32, 2, 1)
	none.Consume()
	opt := optim.NewSGD(nn.Params{a, b, c, none}, optim.SGDConfig{LR: 1, Clip: 1e-3, Scaler: &optim.Scaler{Scale: 4},
		Groups: []optim.Group{{Match: optim.Only(c)}}})
	sums, calls := map[string]float64{}, 0
	opt.Probe(func(list []optim.GradSum) error {
		calls++
		assert.Len(t, list, 4)
		for _, s := range list {
			sums[s.Param.Name()] = s.Squares
		}
		return nil
	})
	require.NoError(t, opt.Step())
	n := float64(long)
	want := map[string]float64{"a": 14, "b": 20, "c": 1e-6 / 16 * n * (n + 1) * (2*n + 1) / 6, "none": 0}
	for name, x := range want {
		assert.InEpsilon(t, 1+x, 1+sums[name], 1e-12, name)
	}
	assert.InDelta(t, 14+20+want["c"], opt.GradNorm()*opt.GradNorm(), 1e-9*want["c"], "clipping is as without a probe")

	broken, before := errors.New("broken"), tensor.Floats(a.Local)
	opt.Probe(func([]optim.GradSum) error { return broken })
	a.FillGrad()
	require.ErrorIs(t, opt.Step(), broken)
	assert.Equal(t, before, tensor.Floats(a.Local), "nothing is changed")
	opt.Probe(nil)
	require.NoError(t, opt.Step())
	assert.NotEqual(t, before, tensor.Floats(a.Local))
	assert.Equal(t, 1, calls)
}

// On a device the sums equal those of the CPU. A probe in a replayed step is an error.
func TestProbeOnDevices(t *testing.T) {
	run := func(dev tensor.Device, captured bool) (squares []float64, err error) {
		model := nn.Sequential{nn.NewLinear(3, 5), nn.Tanh, nn.NewLinear(5, 1)}
		params := nn.Init(model, dev, tensor.Float64, 1)
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(dev)
		defer tape.Close()
		opt.Probe(func(sums []optim.GradSum) error {
			for _, s := range sums {
				squares = append(squares, s.Squares)
			}
			return nil
		})
		step := func(in ...tensor.Tensor) error {
			tape.Backward(nn.MSE(model.Forward(tape.Input(in[0])), in[1]))
			err := opt.Step()
			tape.Reset()
			return err
		}
		if captured {
			c := tensor.Capture(dev, step)
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
		return squares, nil
	}
	cpu := tensor.NewCPU(1)
	defer cpu.Close()
	want, err := run(cpu, true)
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
