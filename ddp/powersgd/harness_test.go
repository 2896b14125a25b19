package powersgd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/ddp/powersgd"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

type training = disttest.Training

// job is a training of a small model with odd shapes and dropout.
type job struct {
	training
	cfg   ddp.Config
	model func() nn.Layer // nil: mlp
	end   func(s *disttest.State) error
}

func mlp() nn.Layer {
	return nn.Sequential{nn.NewLinear(19, 31), nn.ReLU, nn.NewDropout(0.2), nn.NewLinear(31, 17), nn.GELU, nn.NewLinear(17, 5)}
}

// simple is a training by SGD without microbatches.
func simple(ranks, steps, batch int) training {
	return training{Ranks: ranks, Steps: steps, Micro: 1, Batch: batch, Rule: func(p nn.Params, _ optim.Norm) *optim.Optimizer {
		return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	}}
}

func (j job) run(t *testing.T) disttest.Result {
	t.Helper()
	j.cfg.DType, j.cfg.Seed = tensor.Float64, 7
	if j.model == nil {
		j.model = mlp
	}
	j.Attach = func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := j.model()
		params, err := ddp.Attach(r.World, model, j.cfg)
		return disttest.Attached{Params: params, End: j.end, Loss: func(b disttest.Batch) nn.T {
			x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: 19})
			return nn.CrossEntropy(model.Forward(x), y)
		}}, err
	}
	return j.training.Run(t)
}

// What New says when it is used wrong.
func TestMisuse(t *testing.T) {
	misuse.Check(t, []misuse.Case{
		{Of: "New", Want: "powersgd.New: {Rank:-1 Start:0 MinRate:0}, want no negative number; 0 is the default",
			Do: func() error { powersgd.New(powersgd.Config{Rank: -1}); return nil }},
	}, nil)
}
