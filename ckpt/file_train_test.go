package ckpt_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// training is a small training run without a group: dropout, AdamW with a schedule, a loader that shuffles.
type training struct {
	tape   *tensor.Tape
	model  nn.Sequential
	params nn.Params
	opt    *optim.Optimizer
	loader *data.Loader
	step   int
}

func newTraining(t *testing.T, seed uint64) *training {
	dev := cpu.New(1)
	t.Cleanup(dev.Close)
	set, err := data.Synthetic(48, 1, tensor.Float32)
	require.NoError(t, err)
	x := &training{tape: tensor.NewTape(dev, tensor.Seed(seed)),
		loader: data.NewLoader(set, data.Config{Batch: 8, Shuffle: true, Seed: seed, Device: dev})}
	x.model = nn.Sequential{nn.NewLinear(784, 9), nn.ReLU, nn.NewDropout(0.3), nn.NewLinear(9, 10)}
	x.params = nn.Init(x.model, dev, tensor.Float32, seed)
	x.opt = optim.NewAdamW(x.params, optim.AdamWConfig{LR: 1e-2, Schedule: schedule.Warmup(3, schedule.Cosine(0.1, 20))})
	return x
}

// state is the State to save or load; loader is the loader's state, or a pointer to it.
func (x *training) state(loader any) ckpt.State {
	return ckpt.State{Step: x.step, Params: x.params, Optimizer: x.opt, Tape: x.tape, Extra: map[string]any{"loader": loader}}
}

// run does steps and returns their losses.
func (x *training) run(t *testing.T, steps int) (losses []float64) {
	for len(losses) < steps {
		for _, b := range x.loader.Epoch(t.Context(), x.loader.State().Epoch) {
			loss := nn.CrossEntropy(x.model.Forward(x.tape.Input(b.X)), b.Y)
			losses = append(losses, loss.Item())
			x.tape.Backward(loss)
			require.NoError(t, x.opt.Step())
			x.tape.Reset()
			if x.step++; len(losses) == steps {
				break
			}
		}
		require.NoError(t, x.loader.Err())
	}
	return losses
}

// TestFileContinues: a run that resumes from a file, in a program with another seed, does the same ten steps as an
// uninterrupted run, bit for bit.
func TestFileContinues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "last.safetensors")
	first := newTraining(t, 1)
	first.run(t, 4) // of 6 in an epoch
	require.NoError(t, ckpt.SaveFile(t.Context(), path, first.state(first.loader.State())))

	second := newTraining(t, 2)
	var at data.State
	st := second.state(&at)
	_, err := ckpt.LoadFile(t.Context(), path, &st, ckpt.LoadConfig{})
	require.NoError(t, err)
	require.NoError(t, second.loader.SetState(at))
	second.step = st.Step
	require.Equal(t, 4, second.step)
	losses := second.run(t, 10)
	whole := newTraining(t, 1)
	require.Equal(t, whole.run(t, 14)[4:], losses)
	for i, p := range whole.params {
		require.Equal(t, p.Local.Bytes(), second.params[i].Local.Bytes(), p.Name())
	}
	require.Equal(t, whole.opt.LR(), second.opt.LR())
}
