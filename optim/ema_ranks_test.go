package optim_test

import (
	"context"
	"fmt"
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

// train continues from a checkpoint, if there is one, does so many steps, calls Use after every second one, and saves. It returns the
// losses of the evaluation inside and outside of Use, and the parameters and averages at the end.
func (a averaging) train(t *testing.T, from string, steps int) (losses, values []float64, path string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: a.ranks, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(19, 13), nn.Tanh, nn.NewLinear(13, 5)}
		params, err := a.attach(r, model)
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.02, Clip: 0.5, Norm: r.World})
		var e *optim.EMA
		if !a.without {
			e = optim.NewEMA(opt, 0.7)
		}
		st := ckpt.State{Params: params, Optimizer: opt}
		if from != "" {
			report, err := ckpt.Load(ctx, r.World, from, &st, ckpt.LoadConfig{AllowMissing: []string{"*.ema"}})
			if err != nil {
				return fmt.Errorf("%v: %w", report, err)
			}
		}
		set, tape, eval := disttest.Dataset{DType: tensor.Float64, Features: 19}, tensor.NewTape(r.Device), tensor.NewTape(r.Device, tensor.Eval(), tensor.NoGrad())
		evaluate := func() error {
			x, y := set.Samples(r.Device, 5000, 8)
			loss := nn.CrossEntropy(model.Forward(eval.Input(x)), y).Item()
			eval.Reset()
			if r.World.Rank() == 0 {
				losses = append(losses, loss)
			}
			return nil
		}
		for end := st.Step + steps; st.Step < end; st.Step++ {
			set.Backward(r, tape, st.Step, 9, 1, func(x, y nn.T) nn.T { return nn.CrossEntropy(model.Forward(x), y) })
			if err := opt.Step(); err != nil {
				return err
			}
			if e == nil || st.Step%2 == 0 {
				continue
			}
			_ = evaluate()
			if err := e.Use(evaluate); err != nil {
				return err
			}
			_ = evaluate()
		}
		all, err := disttest.Whole(r.World, params...)
		if err != nil {
			return err
		}
		if e != nil {
			if err := e.Use(func() error {
				averages, err := disttest.Whole(r.World, params...)
				all = append(all, averages...)
				return err
			}); err != nil {
				return err
			}
		}
		if r.World.Rank() == 0 {
			values = all
		}
		return ckpt.NewSaver(r.World, dir, ckpt.Config{}).Save(ctx, st)
	}))
	path, err := ckpt.Latest(dir)
	require.NoError(t, err)
	return losses, values, path
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
	losses, values, path := averaging{ranks: 1}.train(t, "", 8)
	require.Len(t, losses, 12)
	require.NotEqual(t, losses[0], losses[1])
	require.Equal(t, losses[0], losses[2])
	more, onwards, _ := averaging{ranks: 1}.train(t, path, 4)
	for _, a := range []averaging{{ranks: 2}, {ranks: 3, stage: 1}, {ranks: 2, stage: 2}, {ranks: 3, stage: 3}, {ranks: 2, stage: 3, keep: true}} {
		got, all, saved := a.train(t, "", 8)
		require.InDeltaSlice(t, losses, got, 1e-10, "%+v", a)
		require.InDeltaSlice(t, values, all, 1e-10, "%+v", a)
		for _, b := range []averaging{a, {ranks: 1}} {
			got, all, _ := b.train(t, saved, 4)
			require.InDeltaSlice(t, more, got, 1e-10, "%+v from %+v", b, a)
			require.InDeltaSlice(t, onwards, all, 1e-10, "%+v from %+v", b, a)
		}
	}
}

// If a checkpoint has no averages, they begin with its values.
func TestEMAOfACheckpointWithoutAverages(t *testing.T) {
	_, values, path := averaging{ranks: 1, without: true}.train(t, "", 3)
	_, all, _ := averaging{ranks: 2, stage: 3}.train(t, path, 0)
	require.Equal(t, append(append([]float64{}, values...), values...), all)
}
