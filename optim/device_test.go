package optim_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// twice is a Norm of one rank that doubles what it sums, as if another rank had as much, from the first norm on. It counts its sums in host
// memory and on the device.
type twice struct{ floats, tensors int }

func (n *twice) SumFloats(x []float64) error {
	if n.floats++; n.floats > asked {
		for i := range x {
			x[i] *= 2
		}
	}
	return nil
}

func (*twice) Rank() int { return 0 }
func (*twice) Size() int { return 1 }

// asked are the sums before the first norm: the numbers of parameters, what ranks hold, and settings.
const asked = 3

// twiceThere is twice, also for tensors.
type twiceThere struct{ twice }

func (n *twiceThere) SumTensor(x tensor.Tensor) error {
	n.tensors++
	e := tensor.NewExec(x.Device())
	a := e.Args(tensor.OpAffine, x.DType()).Out(x).In(x)
	a.F[0] = 2
	e.Launch()
	return nil
}

// clippedStep does two steps with a gradient of norm 5 and returns the value and the norm.
func clippedStep(t *testing.T, dev tensor.Device, n optim.Norm) []float64 {
	p := tensor.NewParam(tensor.Constant(1), 2)
	p.Make(dev, tensor.Float64, 0)
	o := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 1, Clip: 1, Norm: n})
	assert.Zero(t, o.GradNorm(), "before the first step")
	tape := tensor.NewTape(dev)
	defer tape.Close()
	for range 2 {
		tape.Backward(tape.Use(p).Mul(tensor.FromSlice([]float64{3, 4}, 2)).Sum())
		require.NoError(t, o.Step())
		tape.Reset()
	}
	return append(tensor.Floats(p.Value), o.GradNorm())
}

// Norms over ranks are the same on a device whose memory Go code cannot access: summed there if the Norm can, else in host memory.
func TestNormsOnDevices(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	want := clippedStep(t, host, &twice{})
	assert.InDelta(t, 5*math.Sqrt2, want[2], 1e-12)
	slow, fast := &twice{}, &twiceThere{}
	assert.Equal(t, want, clippedStep(t, tensortest.NewRemote(t, 1), slow))
	assert.Equal(t, want, clippedStep(t, tensortest.NewRemote(t, 2), fast))
	assert.Equal(t, [3]int{2 + asked, asked, 2}, [3]int{slow.floats, fast.floats, fast.tensors})
}

// A state can be moved from a device to the host and back.
func TestStateOfDevices(t *testing.T) {
	dev := tensortest.NewRemote(t, 1)
	train := func(dev tensor.Device) (*optim.Optimizer, func() []float64) {
		p := tensor.NewParam(tensor.UniformInit(-1, 1), 300)
		p.Make(dev, tensor.BFloat16, 3)
		o, tape := optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 0.1}), tensor.NewTape(dev)
		return o, func() []float64 {
			tape.Backward(tape.Use(p).Square().Sum())
			require.NoError(t, o.Step())
			tape.Reset()
			return tensor.Floats(p.Value)
		}
	}
	host := cpu.New(1)
	defer host.Close()
	there, step := train(dev)
	step()
	here, _ := train(host)
	require.NoError(t, here.SetState(there.State()))
	for i, x := range here.State().Tensors {
		assert.Equal(t, tensor.Floats(there.State().Tensors[i].Tensor), tensor.Floats(x.Tensor), x.Name)
	}
	again, other := train(dev)
	other()
	other()
	require.NoError(t, again.SetState(here.State()))
	assert.Equal(t, 1, again.Steps())
	for i, x := range again.State().Tensors {
		assert.Equal(t, tensor.Floats(there.State().Tensors[i].Tensor), tensor.Floats(x.Tensor), x.Name)
	}
}

// A step that is skipped because gradients overflow is skipped on devices, too.
func TestScalerOnDevices(t *testing.T) {
	run := func(dev tensor.Device) (values []float64, scales []float64, steps int) {
		p := tensor.NewParam(tensor.Constant(1), 3)
		p.Make(dev, tensor.Float16, 0)
		s := optim.NewScaler()
		o, tape := optim.NewSGD(nn.Params{p}, optim.SGDConfig{LR: 0.01, Scaler: s}), tensor.NewTape(dev)
		defer tape.Close()
		for range 4 {
			tape.Backward(tape.Use(p).Sum(), tensor.Scale(s.Scale))
			require.NoError(t, o.Step())
			tape.Reset()
			scales = append(scales, s.Scale)
		}
		return tensor.Floats(p.Value), scales, o.Steps()
	}
	host := cpu.New(1)
	defer host.Close()
	values, scales, steps := run(host)
	require.Less(t, steps, 4, "65536 is infinite in float16")
	emu.Start(t, emu.Config{Lazy: true})
	gpu, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, gpu.Close()) }()
	for _, dev := range []tensor.Device{tensortest.NewRemote(t, 1), gpu} {
		gotValues, gotScales, gotSteps := run(dev)
		assert.Equal(t, values, gotValues)
		assert.Equal(t, scales, gotScales)
		assert.Equal(t, steps, gotSteps)
	}
}

// With a loss scale, a step waits for the device once, to read the norm.
func TestScalerWaitsOnce(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, dev.Close()) }()
	p := tensor.NewParam(tensor.Constant(1), 3)
	p.Make(dev, tensor.Float16, 0)
	s := optim.NewScaler()
	o, tape := optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 0.01, Scaler: s, Clip: 1}), tensor.NewTape(dev)
	defer tape.Close()
	step := func() {
		tape.Backward(tape.Use(p).Sum(), tensor.Scale(s.Scale))
		require.NoError(t, o.Step())
		tape.Reset()
	}
	for o.Steps() < 3 {
		step()
	}
	before := dev.GPU().Stats()
	step()
	after := dev.GPU().Stats()
	after.Launches = before.Launches
	before.Syncs, before.DeviceToHost = before.Syncs+1, before.DeviceToHost+1
	assert.Equal(t, before, after)
}
