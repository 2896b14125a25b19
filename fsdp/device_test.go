package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks whose devices have memory of their own equal one rank in host memory, in all stages, on a mesh, and with the optimizer
// in host memory. In the short form each kind of GPUs has one of the stages, besides the mesh.
func TestDevicesEqualOneRank(t *testing.T) {
	one := job{cfg: fsdp.Config{DType: tensor.Float64}}
	if !reliability.Long(t) {
		one.Steps = 4
	}
	want := onOne(one).run(t)
	machine := -1 // 0: not GPUs
	disttest.OnEach(t, disttest.Machines(), 4, func(t *testing.T, launch disttest.Launcher) {
		machine++
		one.On = launch
		if reliability.Long(t) || machine < 2 {
			disttest.RequireEqual(t, want, onOne(one).run(t), 1e-10)
		}
		for stage := 1; stage <= 3; stage++ {
			for ranks := 1; ranks <= 4; ranks++ {
				if j := one; reliability.Long(t) || ranks == stage+1 && (machine == 0 || machine == stage) {
					j.Ranks, j.cfg.Stage, j.cfg.HoldGrads, j.offload = ranks, stage, ranks == 3, ranks == 2
					disttest.RequireEqual(t, want, j.run(t), 1e-10)
				}
			}
		}
		j := one
		j.Mesh = "dp=2,fsdp=2"
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	})
}

func TestLongDevicesEqualOneRank(t *testing.T) { reliability.AsLong(t, TestDevicesEqualOneRank) }

// In 16 bits, with the optimizer's values in float32, devices compute nearly the same as host memory.
func TestMixedPrecisionOnDevices(t *testing.T) {
	j := job{cfg: fsdp.Config{Compute: tensor.BFloat16, Reduce: tensor.Float32}}
	if !reliability.Long(t) {
		j.Steps = 4
	}
	want := j.run(t)
	disttest.OnEach(t, disttest.Machines(), 3, func(t *testing.T, launch disttest.Launcher) {
		j.Ranks, j.On = 3, launch
		requireNear(t, want.Losses, j.run(t).Losses, 0.02)
	})
}

func TestLongMixedPrecisionOnDevices(t *testing.T) {
	reliability.AsLong(t, TestMixedPrecisionOnDevices)
}

// A model that was made in host memory is moved to the ranks' devices.
func TestValuesMoveToDevices(t *testing.T) {
	start := newToy()
	params := nn.Init(start, tensor.NewCPU(1), tensor.Float32, 5)
	j := job{training: training{Ranks: 2, Steps: 1}, model: func() model {
		n := newToy()
		for i, p := range nn.Init(n, tensor.NewCPU(1), tensor.Float32, 99) {
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
	disttest.OnEach(t, disttest.Machines(), 2, func(t *testing.T, launch disttest.Launcher) {
		j.On = launch
		j.run(t)
	})
}
