package ddp_test

import (
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// attacher is ddp.Attach or ddp.Naive, or prepares something for one of them.
type attacher = func(*dist.Group, any, ddp.Config) (nn.Params, error)

type training = disttest.Training

// unabridged reports whether this form of a test has what is slow on the emulator: the long one, and on a GPU, where only short ones run.
func unabridged(t *testing.T) bool { return reliability.Long(t) || emu.OnGPU() }

// turn returns, in the short form of a test, one of these machines: tests take turns with them.
func turn(t *testing.T, machines []disttest.Machine, short string) []disttest.Machine {
	return slices.DeleteFunc(machines, func(m disttest.Machine) bool { return m.Name != short && !reliability.Long(t) })
}

// job is a training of a small model with odd shapes and dropout.
type job struct {
	training
	cfg    ddp.Config
	attach attacher        // nil: ddp.Attach
	model  func() nn.Layer // nil: mlp
	end    func(s *disttest.State) error
}

func mlp() nn.Layer {
	return nn.Sequential{nn.NewLinear(19, 31), nn.ReLU, nn.NewDropout(0.2), nn.NewLinear(31, 17), nn.GELU, nn.NewLinear(17, 5)}
}

func sgd(p nn.Params, _ optim.Norm) *optim.Optimizer {
	return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
}

func adamW(clip float64) func(p nn.Params, n optim.Norm) *optim.Optimizer {
	return func(p nn.Params, n optim.Norm) *optim.Optimizer {
		return optim.NewAdamW(p, optim.AdamWConfig{LR: 1e-3, Clip: clip, Norm: n})
	}
}

// simple is a training by sgd without microbatches.
func simple(ranks, steps, batch int) training {
	return training{Ranks: ranks, Steps: steps, Micro: 1, Batch: batch, Rule: sgd}
}

// set is what jobs train on.
func set(dtype tensor.DType) disttest.Dataset { return disttest.Dataset{DType: dtype, Features: 19} }

func (j job) run(t *testing.T) disttest.Result {
	t.Helper()
	return j.whole().Run(t)
}

func (j job) try() error {
	_, err := j.whole().Try()
	return err
}

// counted returns also what each rank communicated in the steps.
func (j job) counted(t *testing.T) (disttest.Result, []dist.Stats) {
	t.Helper()
	stats := make([]dist.Stats, j.Ranks)
	j.end = func(s *disttest.State) error {
		stats[s.Rank.World.Rank()] = s.Rank.World.Stats()
		return nil
	}
	return j.run(t), stats
}

func (j job) whole() training {
	j.cfg.Seed = 7
	if j.attach == nil {
		j.attach = ddp.Attach
	}
	if j.model == nil {
		j.model = mlp
	}
	j.Attach = func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := j.model()
		params, err := j.attach(r.World, model, j.cfg)
		return disttest.Attached{Params: params, End: j.end, Loss: func(b disttest.Batch) nn.T {
			x, y := b.Samples(set(j.cfg.DType))
			return nn.CrossEntropy(model.Forward(x), y)
		}}, err
	}
	return j.training
}

// batch returns samples first, first+1, … of the training set.
func batch(r *dist.Rank, dtype tensor.DType, first, n int) (x, y tensor.Tensor) {
	x, y = set(dtype).Samples(r.Device, first, n)
	return x.WithRows(r.World.Rows(n*r.World.Rank(), n*r.World.Size())), y
}
