package pp_test

import (
	"os"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// A step allocates nothing, whatever the schedule.
func TestSteadySteps(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	steps, names := 6, []string{"1f1b", "zbv"}
	if reliability.Long(t) {
		steps, names = 60, append(names, "interleaved", "zb-h1")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			disttest.SteadySteps(t, dist.Run, 12, steps, func(r *dist.Rank) (func() error, error) { return steadyStep(r, name) })
		})
	}
}

func TestLongSteadySteps(t *testing.T) { reliability.AsLong(t, TestSteadySteps) }

// steadyStep returns a step of linear layers, whose samples are made before.
func steadyStep(r *dist.Rank, name string) (func() error, error) {
	const micros = 6
	s := must(pp.ByName(name, 2, 2, micros))
	layers := make([]*nn.Linear, len(s.Ranks))
	stages, last := map[int]pp.Stage{}, len(s.Ranks)-1
	var x []tensor.Tensor
	for i := range micros {
		x = append(x, tensor.New(r.Device, tensor.Float32, 3, 4).WithRows(tensor.Rows{First: 3 * i, Stride: 1, Total: 3 * micros}))
		tensor.UniformInit(-1, 1).Fill(x[i], 1, uint64(12*i))
	}
	for i, rank := range s.Ranks {
		if rank != r.World.Rank() {
			continue
		}
		l := nn.NewLinear(4, 4)
		layers[i] = l
		stages[i] = func(t *tensor.Tape, micro int, in nn.T) nn.T {
			if i == 0 {
				in = t.Input(x[micro])
			}
			y := l.Forward(in).Tanh()
			if i == last {
				return tensor.GlobalMean(y.Square())
			}
			return y
		}
	}
	params := nn.Init(struct{ Layers []*nn.Linear }{layers}, r.Device, tensor.Float32, 1)
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3, Clip: 1, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	p, err := pp.New(pp.Config{Group: r.World, Schedule: s, Stages: stages, Tape: tape, Params: params, Optimizer: opt})
	return func() error {
		_, err := p.Step()
		if err != nil {
			return err
		}
		return opt.Step()
	}, err
}
