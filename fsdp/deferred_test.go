package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// again has what runs a second time in Backward: Checkpoints in a Checkpoint, a Scope in one, and a tied weight that is used inside and
// outside of them.
type again struct{ toy }

func newAgain() model { return &again{*newToy()} }

func (n *again) Forward(x nn.T) nn.T {
	t := x.Tape()
	block := func(i int) func(in ...nn.T) nn.T {
		return func(in ...nn.T) nn.T { return n.Blocks[i].Forward(in[0]) }
	}
	x = n.In.Forward(x).Mul(t.Use(n.Scale))
	x = t.Checkpoint(func(in ...nn.T) nn.T {
		return n.Tied.Forward(t.Checkpoint(block(1), t.Checkpoint(block(0), in[0])))
	}, x)
	x = t.Checkpoint(func(in ...nn.T) nn.T { return t.Scope(block(2), in[0]).Mul(t.Use(n.Scale)) }, x)
	return n.Head.Forward(n.Wide.Forward(n.Tied.Forward(n.Blocks[3].Forward(x))).Tanh())
}

// deferring makes a step whose weight gradients are put off: those that a Checkpoint or a Function computes earlier come to their owner
// with the others.
func deferring(micro int, loss func(b disttest.Batch) nn.T) func(s *disttest.State) ([]float64, error) {
	return func(s *disttest.State) (losses []float64, err error) {
		for m := range micro {
			l := loss(s.Batch(s.Tape, m))
			losses = append(losses, l.Item())
			if s.Tape.Backward(l, tensor.DeferWeights()); m < micro-1 {
				s.Tape.RunDeferred(tensor.More())
			} else {
				s.Tape.RunDeferred()
			}
			s.Tape.Reset()
		}
		return losses, s.Optimizer.Step()
	}
}

// With every owner, weight gradients that are put off are those of one rank without that.
func TestDeferredWeightsOfCheckpoints(t *testing.T) {
	for _, micro := range []int{1, 2} {
		j := job{one: true, model: newAgain, cfg: fsdp.Config{DType: tensor.Float64}}
		j.Micro = micro
		want := j.run(t)
		j.step = func(p place) ([]float64, error) {
			return deferring(micro, func(b disttest.Batch) nn.T {
				x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: width})
				return nn.CrossEntropy(p.model.Forward(x), y)
			})(p.State)
		}
		disttest.RequireEqual(t, want, j.run(t), 1e-12)
		j.Ranks, j.one = 3, false
		t.Run(fmt.Sprintf("fsdp, %d microbatches", micro), func(t *testing.T) {
			j := j
			for j.cfg.Stage = 1; j.cfg.Stage <= 3; j.cfg.Stage++ {
				for _, j.cfg.HoldGrads = range []bool{false, true} {
					disttest.RequireEqual(t, want, j.run(t), 1e-10)
				}
			}
		})
		t.Run(fmt.Sprintf("ddp, %d microbatches", micro), func(t *testing.T) {
			j.with = func(r *dist.Rank, n model) (nn.Params, error) {
				return ddp.Attach(r.World, n, ddp.Config{DType: tensor.Float64, Seed: 7, BucketBytes: 300})
			}
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		})
	}
}

// The same where a parameter goes through a sum over tp, in a Checkpoint and outside of one.
func TestDeferredWeightsThroughASum(t *testing.T) {
	for _, model := range []func() cutModel{newMixer, newMixerAgain} {
		j := cutJob{model: model}
		want := j.run(t)
		j.deferred, j.Mesh = true, "dp=1,fsdp=2,tp=2"
		for stage := 1; stage <= 3; stage++ {
			j.cfg.Stage = stage
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		}
		j.with = func(m *dist.Mesh, n cutModel, c fsdp.Config) (nn.Params, error) {
			return ddp.Attach(n.rows(m), n, ddp.Config{DType: c.DType, Seed: c.Seed, BucketBytes: 300})
		}
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	}
}
