package optim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// written trains a parameter for 12 steps, and writes it behind step 4: one element, which is 1/2 then. It returns the values, and the
// masters of a 16-bit one.
func written(t *testing.T, dev tensor.Device, d tensor.DType, write func(p *tensor.Param, o *optim.Optimizer)) (values, masters []float64) {
	p := tensor.NewParam(tensor.UniformInit(-1, 1), 5)
	p.SetName("p")
	p.Make(dev, d, 3)
	o, tape := optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 1e-3}), tensor.NewTape(dev)
	defer tape.Close()
	for step := range 12 {
		tape.Backward(tape.Use(p).Square().Sum())
		require.NoError(t, o.Step())
		tape.Reset()
		if step == 3 && write != nil {
			write(p, o)
		}
	}
	for _, x := range o.State().Tensors {
		if x.Name == "p.master" {
			masters = tensor.Floats(x.Tensor)
		}
	}
	return tensor.Floats(p.Value), masters
}

// What a program writes to a 16-bit parameter, and says so by Changed, stays in the next steps; what it did not change keeps the bits that
// only the master has.
func TestWrittenParameters(t *testing.T) {
	half := func(p *tensor.Param) tensor.Tensor {
		x := tensor.Floats(p.Local)
		x[2] = 0.5
		return tensor.FromSlice(x, 5).Cast(p.Local.DType())
	}
	writes := map[string]func(p *tensor.Param, o *optim.Optimizer){
		"Changed": func(p *tensor.Param, _ *optim.Optimizer) { tensor.Copy(p.Local, half(p)); p.Changed() },
		"SetValue": func(p *tensor.Param, _ *optim.Optimizer) {
			x := tensor.New(p.Local.Device(), p.Local.DType(), 5)
			tensor.Copy(x, half(p))
			p.SetValue(x)
		},
		"State": func(p *tensor.Param, o *optim.Optimizer) {
			tensor.Copy(p.Local, half(p))
			p.Changed()
			require.NoError(t, o.SetState(o.State()))
		},
		"nothing": func(p *tensor.Param, _ *optim.Optimizer) { p.Changed() },
		"averages": func(p *tensor.Param, o *optim.Optimizer) {
			require.NoError(t, optim.NewEMA(o, 0.5).Use(func() error { return nil }))
		},
	}
	host := cpu.New(1)
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		exact, _ := written(t, host, tensor.Float32, writes["Changed"])
		_, want := written(t, host, d, nil)
		for name, write := range writes {
			for i, dev := range []tensor.Device{host, tensortest.NewRemote(t, 1)} {
				t.Run(fmt.Sprint(d, " ", name, " ", i), func(t *testing.T) {
					values, masters := written(t, dev, d, write)
					if name == "nothing" || name == "averages" {
						require.Equal(t, want, masters)
						return
					}
					require.InDelta(t, exact[2], values[2], 4e-3)
					require.InDelta(t, exact[2], masters[2], 1e-4)
					require.Equal(t, append(want[:2:2], want[3:]...), append(masters[:2:2], masters[3:]...))
				})
			}
		}
	}
}

// A captured step does not see what a program writes between replays, and says so.
func TestWrittenBetweenReplays(t *testing.T) {
	emu.Start(t, emu.Config{Devices: 1, Lazy: true})
	gpu, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { require.NoError(t, gpu.Close()) }()
	p := tensor.NewParam(tensor.UniformInit(-1, 1), 5)
	p.SetName("p")
	p.Make(gpu, tensor.BFloat16, 3)
	o, tape := optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 1e-3}), tensor.NewTape(gpu)
	defer tape.Close()
	step := capture.New(gpu, func(...tensor.Tensor) error {
		tape.Backward(tape.Use(p).Square().Sum())
		err := o.Step()
		tape.Reset()
		return err
	})
	defer step.Close()
	for range 5 {
		require.NoError(t, step.Run())
	}
	p.Changed()
	require.ErrorContains(t, tensor.Try(func() { require.NoError(t, step.Run()) }), "p[5] was written after the step was captured")
}
