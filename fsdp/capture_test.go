package fsdp_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// captured is a training of steps of two microbatches with dropout and clipping, of which one has fewer rows. Now and then the model is
// evaluated. Its losses are the ranks' last ones, and what the evaluation gave.
func captured(launch disttest.Launcher, cfg fsdp.Config, capture bool) training {
	c := training{Ranks: 2, On: launch, Steps: 12}
	c.Attach = func(r *dist.Rank, _ *dist.Mesh) (a disttest.Attached, err error) {
		m, last, eval := newToy(), tensor.New(r.Device, tensor.Float64), tensor.NewTape(r.Device, tensor.NoGrad())
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
		graph := tensor.Capture(r.Device, step)
		if capture {
			step = graph.Run
		}
		a.Step = func(state *disttest.State) ([]float64, error) {
			s = state
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
			if s.Step == 5 || s.Step == 8 || s.Step == 11 {
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

// Captured steps have the bits of steps that run, in all stages.
func TestCapturedSteps(t *testing.T) {
	stage := 0
	disttest.OnEach(t, disttest.GPUs(), 2, func(t *testing.T, launch disttest.Launcher) {
		stage++
		for s := 1; s <= 3; s++ {
			if s != stage && !reliability.Long(t) {
				continue
			}
			for _, hold := range []bool{false, true}[:min(s, 2)] {
				if hold == (s == 2) && s > 1 && !reliability.Long(t) {
					continue
				}
				cfg := fsdp.Config{Stage: s, HoldGrads: hold}
				disttest.RequireEqual(t, captured(launch, cfg, false).Run(t), captured(launch, cfg, true).Run(t), 0)
			}
		}
	})
}

func TestLongCapturedSteps(t *testing.T) { reliability.AsLong(t, TestCapturedSteps) }
