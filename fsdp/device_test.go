package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// forDevices is a toy, of two blocks in the short form: the emulator is slow.
func forDevices(t *testing.T) func() model {
	return func() model {
		n := newToy()
		if !reliability.Long(t) {
			n.Blocks = n.Blocks[:2]
		}
		return n
	}
}

// Ranks whose devices have memory of their own equal one rank in host memory, in all stages, on a mesh, and with the optimizer
// in host memory. In the short form, remote memory has stages 1 and 2 and copies, and GPUs with NCCL have stage 3 (emulated, two ranks).
func TestDevicesEqualOneRank(t *testing.T) {
	one := job{cfg: fsdp.Config{DType: tensor.Float64}, model: forDevices(t)}
	if !reliability.Long(t) {
		one.Steps = 4
	}
	want := onOne(one).run(t)
	machines := append(turn(t, disttest.Machines()[:1], "remote"), turn(t, disttest.GPUs(), "NCCL")...)
	gpus, sharded := false, 2
	if emu.OnGPU() {
		sharded = 4
	}
	disttest.OnEach(t, machines, 4, func(t *testing.T, launch disttest.Launcher) {
		one.On = launch
		if reliability.Long(t) {
			disttest.RequireEqual(t, want, onOne(one).run(t), 1e-10)
		}
		for stage := 1; stage <= 3; stage++ {
			for ranks := 1; ranks <= 4; ranks++ {
				if j := one; reliability.Long(t) || ranks == []int{2, 3, sharded}[stage-1] && gpus == (stage == 3) {
					j.Ranks, j.cfg.Stage, j.cfg.OncePerStep, j.offload = ranks, stage, ranks == 3, ranks == 2
					disttest.RequireEqual(t, want, j.run(t), 1e-10)
				}
			}
		}
		for k, mesh := range []string{"dp=2,fsdp=2", "dp=1,host=2,gpu=2"} {
			if j := one; reliability.Long(t) || k == 0 && !gpus || k == 1 && gpus && emu.OnGPU() {
				j.Mesh, j.near = mesh, k == 1
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
		gpus = true
	})
}

func TestLongDevicesEqualOneRank(t *testing.T) { reliability.AsLong(t, TestDevicesEqualOneRank) }

// In 16 bits, with the optimizer's values in float32, devices compute nearly the same as host memory.
func TestMixedPrecisionOnDevices(t *testing.T) {
	j := job{cfg: fsdp.Config{Compute: tensor.BFloat16, Reduce: tensor.Float32}, model: forDevices(t)}
	if !reliability.Long(t) {
		j.Steps = 4
	}
	want := j.run(t)
	disttest.OnEach(t, turn(t, disttest.Machines(), "GPUs"), 3, func(t *testing.T, launch disttest.Launcher) {
		if j.Ranks, j.On = 3, launch; !unabridged(t) {
			j.Ranks = 2
		}
		requireNear(t, want.Losses, j.run(t).Losses, 0.02)
	})
}

func TestLongMixedPrecisionOnDevices(t *testing.T) {
	reliability.AsLong(t, TestMixedPrecisionOnDevices)
}

// A model that was made in host memory is moved to the ranks' devices.
func TestValuesMoveToDevices(t *testing.T) {
	start := newToy()
	params := nn.Init(start, cpu.New(1), tensor.Float32, 5)
	j := job{training: training{Ranks: 2, Steps: 1}, model: func() model {
		n := newToy()
		for i, p := range nn.Init(n, cpu.New(1), tensor.Float32, 99) {
			tensor.Copy(p.Value, params[i].Value)
		}
		return n
	}, before: func(at place) error {
		for i, p := range at.Params {
			x, err := at.sharding.Full(p)
			if err != nil {
				return err
			}
			require.Equal(t, at.Rank.Device, x.Device())
			require.Equal(t, tensor.Floats(params[i].Value), tensor.Floats(x))
		}
		return nil
	}}
	disttest.OnEach(t, turn(t, disttest.Machines(), "one GPU"), 2, func(t *testing.T, launch disttest.Launcher) {
		j.On = launch
		j.run(t)
	})
}

func TestLongValuesMoveToDevices(t *testing.T) { reliability.AsLong(t, TestValuesMoveToDevices) }

// captured is a training of steps of two microbatches with dropout and clipping, of which one has fewer rows. Now and then the model is
// evaluated, and a frozen value changed. Its losses are the ranks' last ones, and what the evaluation gave.
func captured(t *testing.T, launch disttest.Launcher, cfg fsdp.Config, captures bool) training {
	c := training{Ranks: 2, On: launch, Steps: 10}
	c.Attach = func(r *dist.Rank, _ *dist.Mesh) (a disttest.Attached, err error) {
		m, last, eval := forDevices(t)().(*toy), tensor.New(r.Device, tensor.Float64), tensor.NewTape(r.Device, tensor.NoGrad())
		m.Scale.Freeze()
		cfg := cfg
		cfg.Shard, cfg.DType, cfg.Seed = r.World, tensor.Float64, 5
		sharding := fsdp.New(cfg)
		m.units(sharding)
		a.Params, err = sharding.Attach(m)
		a.Norm = sharding
		var s *disttest.State
		step := func(in ...tensor.Tensor) error {
			defer s.Tape.Reset()
			s.Tape.Backward(nn.MSE(m.Forward(s.Tape.Input(in[0])).Slice(1, 0, width), in[1]), tensor.More())
			loss := nn.MSE(m.Forward(s.Tape.Input(in[1])).Tanh().Slice(1, 0, width), in[0])
			tensor.Copy(last, loss)
			s.Tape.Backward(loss)
			return s.Optimizer.Step()
		}
		graph := capture.New(r.Device, step)
		if captures {
			step = graph.Run
		}
		a.Step = func(state *disttest.State) ([]float64, error) {
			s = state
			if own := m.Scale.Local; s.Step%4 == 0 {
				tensor.Copy(own, tensor.FromSlice([]float64{1 + 0.1*float64(s.Step)}, 1).Range(0, own.Len()))
				m.Scale.Changed()
			}
			n := 6
			if s.Step == 6 {
				n = 4
			}
			data := disttest.Dataset{DType: tensor.Float64, Features: width}
			x, _ := data.Samples(r.Device, 100*s.Step, n)
			y, _ := data.Samples(r.Device, 100*s.Step+50, n)
			at := r.World.Rows(n*r.World.Rank(), n*r.World.Size())
			disttest.OK(step(x.WithRows(at), y.WithRows(at)))
			losses := make([]float64, 2)
			losses[r.World.Rank()] = last.Item()
			if s.Step < 2 || s.Step%3 == 2 { // also just before a step is recorded
				losses = append(losses, tensor.Floats(tensor.ToHost(m.Forward(eval.Input(x))))...)
				eval.Reset()
			}
			return losses, nil
		}
		a.End = func(*disttest.State) error {
			graph.Close()
			eval.Close()
			return nil
		}
		return a, err
	}
	return c
}

// Captured steps have the bits of steps that run, in all stages. The short form has stage 3.
func TestCapturedSteps(t *testing.T) {
	disttest.OnEach(t, turn(t, disttest.GPUs(), "one GPU"), 2, func(t *testing.T, launch disttest.Launcher) {
		for s := 1; s <= 3; s++ {
			for _, once := range []bool{false, true}[:min(s, 2)] {
				if (s < 3 || once) && !unabridged(t) {
					continue
				}
				cfg := fsdp.Config{Stage: s, OncePerStep: once}
				disttest.RequireEqual(t, captured(t, launch, cfg, false).Run(t), captured(t, launch, cfg, true).Run(t), 0)
			}
		}
	})
}

func TestLongCapturedSteps(t *testing.T) { reliability.AsLong(t, TestCapturedSteps) }

// With the optimizer on another device the same bits come out, and the rank's own device has nothing of the optimizer.
func TestOffload(t *testing.T) {
	half := tensor.BFloat16
	for i, c := range []job{{cfg: fsdp.Config{Stage: 1}}, {cfg: fsdp.Config{Stage: 2}}, {cfg: fsdp.Config{Stage: 3, DType: tensor.Float64}},
		{cfg: fsdp.Config{Stage: 3}, training: training{Mesh: "dp=2,fsdp=2"}},
		{cfg: fsdp.Config{Stage: 1, Compute: half}}, {cfg: fsdp.Config{Stage: 3, Compute: half, Reduce: half}},
		{cfg: fsdp.Config{Stage: 2, OncePerStep: true}}} {
		if (i != 2 && i != 4) != reliability.Long(t) {
			continue
		}
		if c.Mesh == "" {
			c.Ranks = 3
		}
		want := c.run(t)
		c.offload = true
		c.end = func(p place) error {
			mine, host := p.Rank.Device.Memory(), p.Params[0].Local.Device().Memory()
			for _, k := range []memory.Use{memory.Parameters, memory.Gradients, memory.OptimizerState} {
				if k == memory.OptimizerState || k == memory.Parameters && c.cfg.Stage == 3 {
					require.Zero(t, mine.Of(k), "%+v: %v", c.cfg, k)
				}
				require.Positive(t, host.Of(k).Live, "%+v: %v", c.cfg, k)
			}
			return nil
		}
		disttest.RequireEqual(t, want, c.run(t), 0)
	}
}

func TestLongOffload(t *testing.T) { reliability.AsLong(t, TestOffload) }

// Values that a model has are taken over.
func TestOffloadTakesValues(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		n := newToy()
		params := nn.Init(n, r.Device, tensor.BFloat16, 5)
		want := make([][]float64, len(params))
		for i, p := range params {
			want[i] = tensor.Floats(p.Value)
		}
		s := fsdp.New(fsdp.Config{Shard: r.World, Offload: cpu.New(1)})
		n.units(s)
		params = disttest.Must(s.Attach(n))
		for i, p := range params {
			x := disttest.Must(s.Full(p))
			require.Equal(t, want[i], tensor.Floats(x), p.Name())
		}
		return nil
	}))
}

// device is one whose memory Go code may not touch.
type device struct{ *cpu.Device }

func (device) Host() bool     { return false }
func (device) String() string { return "a device" }

func TestOffloadToHostMemoryOnly(t *testing.T) {
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		s := fsdp.New(fsdp.Config{Shard: r.World, Offload: device{cpu.New(1)}})
		_, err := s.Attach(newChain())
		require.ErrorContains(t, err, "fsdp: Config.Offload is a device, which is not in host memory")
		return nil
	}))
}
