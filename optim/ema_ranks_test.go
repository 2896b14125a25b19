package optim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// averaging is a training with averages on several ranks, with ddp (stage 0) or a stage of fsdp.
type averaging struct {
	ranks, stage int
	without      bool // no averages
	keep         bool // fsdp's units stay gathered
}

// train continues from a checkpoint, if there is one, calls Use after every second step, and saves step last. The result's moments have
// the averages. losses are those of the evaluation inside and outside of Use.
func (a averaging) train(t *testing.T, from string, last int) (res disttest.Result, losses []float64, path string) {
	t.Helper()
	dir := t.TempDir()
	attach := func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model, set := nn.Sequential{nn.NewLinear(19, 13), nn.Tanh, nn.NewLinear(13, 5)}, disttest.Dataset{DType: tensor.Float64, Features: 19}
		eval := tensor.NewTape(r.Device, tensor.Eval(), tensor.NoGrad())
		params, err := a.attach(r, model)
		var e *optim.EMA
		state := func(s *disttest.State) ckpt.State {
			return ckpt.State{Step: s.Step, Params: params, Optimizer: s.Optimizer}
		}
		evaluate := func() error {
			x, y := set.Samples(r.Device, 5000, 8)
			loss := nn.CrossEntropy(model.Forward(eval.Input(x)), y).Item()
			eval.Reset()
			if r.World.Rank() == 0 {
				losses = append(losses, loss)
			}
			return nil
		}
		return disttest.Attached{Params: params, Norm: r.World, Loss: func(b disttest.Batch) nn.T {
			x, y := b.Samples(set)
			return nn.CrossEntropy(model.Forward(x), y)
		}, Start: func(s *disttest.State) error {
			if !a.without {
				e = optim.NewEMA(s.Optimizer, 0.7)
			}
			if from == "" {
				return nil
			}
			st := state(s)
			_, err := ckpt.Load(context.Background(), r.World, from, &st, ckpt.LoadConfig{AllowMissing: []string{"*.ema"}})
			s.Step = st.Step
			return err
		}, After: func(s *disttest.State) error {
			if e == nil || s.Step%2 == 0 {
				return nil
			}
			return errors.Join(evaluate(), e.Use(evaluate), evaluate())
		}, End: func(s *disttest.State) error {
			return ckpt.NewSaver(r.World, dir, ckpt.Config{}).Save(context.Background(), state(s))
		}}, err
	}
	res = disttest.Training{Ranks: a.ranks, Steps: last, Micro: 1, Batch: 9, Attach: attach}.Run(t)
	path, err := ckpt.Latest(dir)
	require.NoError(t, err)
	return res, losses, path
}

func (a averaging) attach(r *dist.Rank, model nn.Sequential) (nn.Params, error) {
	if a.stage == 0 {
		return ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 5})
	}
	s := fsdp.New(fsdp.Config{Shard: r.World, Stage: a.stage, DType: tensor.Float64, Seed: 5})
	if a.keep {
		s.Keep(model[0])
		s.Unit(model[2])
	} else {
		s.Unit(model)
	}
	return s.Attach(model)
}

// Averages on many ranks, also of shards, equal those of one rank. They can be loaded from a checkpoint with another layout, and no copies
// of values remain in memory.
func TestEMAOnRanks(t *testing.T) {
	want, losses, path := averaging{ranks: 1}.train(t, "", 8)
	require.Len(t, losses, 12)
	require.NotEqual(t, losses[0], losses[1])
	require.Equal(t, losses[0], losses[2])
	onwards, more, _ := averaging{ranks: 1}.train(t, path, 12)
	for _, a := range []averaging{
		{ranks: 2}, {ranks: 3, stage: 1}, {ranks: 2, stage: 2}, {ranks: 3, stage: 3}, {ranks: 2, stage: 3, keep: true},
	} {
		got, evaluated, saved := a.train(t, "", 8)
		disttest.RequireEqual(t, want, got, 1e-10)
		require.InDeltaSlice(t, losses, evaluated, 1e-10, "%+v", a)
		for _, b := range []averaging{a, {ranks: 1}} {
			next, evaluated, _ := b.train(t, saved, 12)
			disttest.RequireEqual(t, onwards.Since(0, got.Last), next, 1e-10)
			require.InDeltaSlice(t, more, evaluated, 1e-10, "%+v from %+v", b, a)
		}
	}
}

// If a checkpoint has no averages, they begin with its values.
func TestEMAOfACheckpointWithoutAverages(t *testing.T) {
	want, _, path := averaging{ranks: 1, without: true}.train(t, "", 3)
	got, _, _ := averaging{ranks: 2, stage: 3}.train(t, path, 3)
	require.Equal(t, want.Last, got.Last)
	for name, values := range want.Last {
		require.Equal(t, values, got.Moments[name+".ema"])
	}
}
