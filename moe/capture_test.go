package moe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
)

// captured is a training in steps of two microbatches with dropout, of which a few have fewer rows.
func captured(launch disttest.Launcher, j job, captures bool) disttest.Training {
	c := disttest.Training{Mesh: whole(j.mesh), On: launch, Steps: 11, Rule: func(p nn.Params, n optim.Norm) *optim.Optimizer {
		warm := schedule.Warmup(4, schedule.Cosine(0.1, 20))
		return optim.NewAdamW(p.Trainable(), optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: n, Schedule: warm})
	}}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		m, last, data := newModel(j.Config), tensor.New(r.Device, tensor.Float64), mesh.Group("dp", "ep")
		params, err := j.attach(m, mesh)
		var s *disttest.State
		step := func(in ...tensor.Tensor) error {
			defer s.Tape.Reset()
			s.Tape.Backward(m.loss(s.Tape.Input(in[0]), j.again), tensor.More())
			loss := m.loss(s.Tape.Input(in[1]), j.again)
			tensor.Copy(last, loss)
			s.Tape.Backward(loss)
			return s.Optimizer.Step()
		}
		graph := capture.New(r.Device, step)
		sum := along(mesh, "")
		return disttest.Attached{Params: params, Norm: r.World, Data: data, Sum: sum, Step: func(state *disttest.State) ([]float64, error) {
			s = state
			n, do := 5, step
			if s.Step == 5 || s.Step == 8 {
				n = 3
			}
			if captures {
				do = graph.Run
			}
			first, at := 20*s.Step+n*data.Rank(), data.Rows(n*data.Rank(), n*data.Size())
			cp := mesh.Group("cp")
			err := do(positions(sequences(first, n), cp, at), positions(sequences(first+10, n), cp, at))
			return []float64{last.Item()}, err
		}, End: func(*disttest.State) error { graph.Close(); return nil }}, err
	}
	return c
}

// Captured steps of a layer with a capacity have the bits of steps that run: rows travel between ranks, and are computed again.
// The emulator is slow: the short form has seven steps.
func TestCapturedSteps(t *testing.T) {
	shared := moe.Config{Features: 6, Hidden: 5, Experts: 4, Router: routers["qwen"], Capacity: 1.25, Balance: 0.1, Z: 0.01, Shared: 4}
	sequence := shared
	sequence.Sequence = 3
	cases := []job{{mesh: "ep=2", Config: shared}, {mesh: "ep=2", again: true, half: true, Config: shared},
		{mesh: "cp=2", Config: sequence}}
	machines := disttest.GPUs()
	if !reliability.Long(t) {
		cases, machines = cases[1:2], machines[:1]
	}
	short := !reliability.Long(t) && !emu.OnGPU()
	if short {
		cases[0].Shared, cases[0].again = 0, false
	}
	disttest.OnEach(t, machines, 2, func(t *testing.T, launch disttest.Launcher) {
		for _, j := range cases {
			runs, captures := captured(launch, j, false), captured(launch, j, true)
			if short {
				runs.Steps, captures.Steps = 7, 7
			}
			disttest.RequireEqual(t, runs.Run(t), captures.Run(t), 0)
		}
	})
}

func TestLongCapturedSteps(t *testing.T) { reliability.AsLong(t, TestCapturedSteps) }

// Without a capacity, how many rows travel depends on data: the host would have to wait for it.
func TestCapturedWithoutCapacity(t *testing.T) {
	j := job{mesh: "ep=2", Config: moe.Config{Features: 6, Hidden: 5, Experts: 4, Router: routers["qwen"]}}
	_, err := captured(disttest.LauncherFor(t, "one GPU", 2), j, true).Try()
	require.ErrorContains(t, err, "dispatch.depart int64[8]: needs numbers on the host that the device computes: inside a captured step")
}
