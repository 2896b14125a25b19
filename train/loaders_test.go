package train_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// loop is one of a script: over which loader, and up to which step.
type loop struct{ of, upto int }

// samplesOf trains in loops up to a step, and returns the samples of its steps.
func samplesOf(t *testing.T, o *train.Options, loops []loop, end int) (seen []string) {
	t.Helper()
	require.NoError(t, o.Run(dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.NewLinear(3, 1)
		params := nn.Init(model, r.Device, tensor.Float64, 1)
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.01}), tensor.NewTape(r.Device)
		l := disttest.Must(train.Start(ctx, r, o, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
		var loaders [2]*data.Loader
		for i := range loaders {
			loaders[i] = data.NewLoader(points{}, data.Config{Batch: 6, Shuffle: true, Seed: uint64(i), Device: r.Device})
		}
		for _, x := range loops {
			for step, b := range l.Batches(loaders[x.of], min(x.upto, end)) {
				seen = append(seen, fmt.Sprint(step, b.Samples))
				tape.Backward(nn.MSE(model.Forward(tape.Input(b.X)), b.Y))
				disttest.OK(opt.Step())
				tape.Reset()
			}
		}
		return l.Close()
	}))
	return seen
}

// A script with several loops, over one loader or two, goes on with the samples that a stop has left, wherever it stops.
func TestResumeInEveryLoop(t *testing.T) {
	for name, loops := range map[string][]loop{
		"a loop for each epoch": {{0, 4}, {0, 8}, {0, 10}},
		"two loaders":           {{0, 3}, {1, 9}},
		"by turns":              {{0, 3}, {1, 6}, {0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			last := loops[len(loops)-1].upto
			want := samplesOf(t, &train.Options{Save: t.TempDir(), Quiet: true}, loops, last)
			require.Len(t, want, last)
			for stop := 1; stop < last; stop++ {
				o := &train.Options{Save: t.TempDir(), Quiet: true}
				got := samplesOf(t, o, loops, stop)
				o.Resume = true
				require.Equal(t, want, append(got, samplesOf(t, o, loops, last)...), "stopped after %d steps", stop)
			}
		})
	}
}

// Older checkpoints have the place of one loader.
func TestResumeFromOneLoader(t *testing.T) {
	loops := []loop{{0, 10}}
	want := samplesOf(t, &train.Options{Save: t.TempDir(), Quiet: true}, loops, 10)
	o := &train.Options{Save: t.TempDir(), Quiet: true, Resume: true}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.NewLinear(3, 1)
		params := nn.Init(model, r.Device, tensor.Float64, 1)
		s := ckpt.NewSaver(r.World, o.Save, ckpt.Config{})
		old := map[string]any{"loader": data.State{Epoch: 1, Step: 1, Shuffle: true, Batch: 6, Samples: 20}, "values": []any{}}
		disttest.OK(s.Save(ctx, ckpt.State{Params: params, Optimizer: optim.NewSGD(params, optim.SGDConfig{LR: 0.01}),
			Tape: tensor.NewTape(r.Device), Step: 5, Extra: map[string]any{"train": &old}}))
		return s.Close()
	}))
	require.Equal(t, want[5:], samplesOf(t, o, loops, 10))
}
