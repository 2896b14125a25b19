package train_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// folders returns the names in a directory.
func folders(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, x := range all {
		if x.Name() != ".lock" {
			names = append(names, x.Name())
		}
	}
	return names
}

// logged trains nothing, and logs these values: one for each step, NaN for none. It returns the steps that were done.
func logged(t *testing.T, o *train.Options, name string, values ...float64) (done int) {
	t.Helper()
	require.NoError(t, o.Run(dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1)
		l := disttest.Must(train.Start(ctx, r, o, ckpt.State{Params: model}))
		for step := range l.Steps(len(values)) {
			if !math.IsNaN(values[step]) {
				l.Log(name, values[step])
			}
			disttest.OK(l.Flush())
		}
		if r.World.Rank() == 0 {
			done, _ = l.Done()
		}
		return l.Close()
	}))
	return done
}

// The newest checkpoints stay, and the best one, also after a resume: the smallest value, or the largest.
func TestKeep(t *testing.T) {
	none := math.NaN()
	for name, c := range map[string]struct {
		keep int
		best string
		want []int
	}{
		"all":      {0, "", []int{1, 2, 3, 4, 5, 6, 7, 8}},
		"newest":   {2, "", []int{7, 8}},
		"smallest": {2, "v", []int{4, 7, 8}},
		"largest":  {2, "max:v", []int{3, 7, 8}},
		"new":      {1, "w", []int{8}},
	} {
		if (name == "all" || name == "new") != reliability.Long(t) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			o := train.Options{Save: t.TempDir(), SaveEvery: 1, Keep: c.keep, KeepBest: c.best}
			logged(t, &o, "v", 5, none, 9, 1, 3)
			o.Resume = true
			logged(t, &o, "v", 5, none, 9, 1, 3, none, 2, 4)
			var want []string
			for _, step := range c.want {
				want = append(want, fmt.Sprintf("step-%08d", step))
			}
			require.Equal(t, want, folders(t, o.Save))
		})
	}
}

func TestLongKeep(t *testing.T) { reliability.AsLong(t, TestKeep) }

// The training ends when a value has not become better often enough, and its last step is saved.
func TestPatience(t *testing.T) {
	o := train.Options{Save: t.TempDir(), SaveEvery: 100, KeepBest: "v", Patience: 3}
	require.Equal(t, 7, logged(t, &o, "v", 5, 6, 4, 4, math.NaN(), 7, 4, 3, 2))
	require.Equal(t, []string{"step-00000007"}, folders(t, o.Save))
	o = train.Options{KeepBest: "max:v", Patience: 2}
	require.Equal(t, 5, logged(t, &o, "v", 1, 2, 3, 2, 1, 9))
}

// A checkpoint that is due between microbatches is saved behind the optimizer's step, and an early end comes there, too: a resumed training
// would go on without the gradients of those before.
func TestSaveBetweenMicrobatches(t *testing.T) {
	whole := run{ranks: 2, steps: 15, micro: 3}
	whole.Save, whole.SaveEvery = t.TempDir(), 2
	want, err := whole.train()
	require.NoError(t, err)
	require.Equal(t, []string{"step-00000003", "step-00000006", "step-00000009", "step-00000012", "step-00000015"}, folders(t, whole.Save))
	for step := 12; step > 0; step -= 3 {
		x := run{ranks: 2, steps: 15, micro: 3}
		x.Save, x.Resume, x.ResumeStep = whole.Save, true, step
		got, err := x.train()
		require.NoError(t, err)
		require.Equal(t, step, got.resumed)
		require.Equal(t, want.weights, got.weights)
		require.Equal(t, want.losses, got.losses)
	}
	early := run{ranks: 2, steps: 15, micro: 3, each: func(_ *dist.Rank, step int, l *train.Loop) error {
		l.Log("v", 1)
		return l.Flush()
	}}
	early.Save, early.KeepBest, early.Patience = t.TempDir(), "v", 3
	got, err := early.train()
	require.NoError(t, err)
	require.Equal(t, want.losses[:6], got.losses, "patience is over behind step 4")
	require.Equal(t, []string{"step-00000006"}, folders(t, early.Save))
}

// What a flag of the script was in the run that saved the checkpoint is said, and -override lr makes the flag win.
func TestOtherSettings(t *testing.T) {
	dir := t.TempDir()
	var x run
	start := func(lr float64, args ...string) {
		t.Helper()
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		o := train.Flags(fs)
		fs.Int("batch", 6, "")
		fs.String("text", "", "")
		require.NoError(t, fs.Parse(append(args, "-save", dir)))
		x = run{Options: *o, steps: x.steps + 2, lr: lr}
		_, err := x.train()
		require.NoError(t, err)
	}
	start(0.05)
	require.NotContains(t, x.log.String(), "-batch")
	start(0.01, "-resume", "-batch", "8", "-text", "new", "-metrics", filepath.Join(dir, "m.csv"))
	require.Contains(t, x.log.String(), "resumed at step 2\n-batch is \"8\", and was \"6\" in the run that saved the checkpoint\n"+
		"-text is \"new\", and was \"\" in the run that saved the checkpoint\nthe checkpoint replaces the learning rate 0.01 by 0.05 (-override lr: not)\n")
	start(0.01, "-resume", "-override", "lr", "-batch", "8", "-text", "new")
	require.Contains(t, x.log.String(), "resumed at step 4\nthe learning rate is 0.01, not 0.05 as in the checkpoint\n")
	start(0.01, "-resume", "-batch", "8", "-text", "new")
	require.NotContains(t, x.log.String(), "learning rate", "the checkpoint has the new one")
	require.NotContains(t, x.log.String(), "-batch")
}

// What a training that resumes could not read is refused before the first step.
func TestExtraIsRead(t *testing.T) {
	for key, c := range map[string]struct {
		v    any
		want string
	}{
		"phase": {2, `train: Extra["phase"] is a int: give &x, a pointer to a variable, which a training that resumes sets`},
		"none":  {(*int)(nil), `train: Extra["none"] is a *int: give &x, a pointer to a variable, which a training that resumes sets`},
		"train": {new(int), `train: Extra["train"] is what the loop saves of itself: give yours another name`},
	} {
		err := dist.Run(t.Context(), dist.Config{Ranks: 1}, func(ctx context.Context, r *dist.Rank) error {
			_, err := train.Start(ctx, r, &train.Options{Quiet: true}, ckpt.State{Extra: map[string]any{key: c.v}})
			return err
		})
		require.ErrorContains(t, err, c.want)
	}
}

// Values that are not finite are not saved, unless the State says so: the checkpoint before stays.
func TestNonfiniteIsNotSaved(t *testing.T) {
	o := train.Options{Save: t.TempDir(), SaveEvery: 1, Keep: 1}
	run := func(allow bool) error {
		return o.Run(dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			params := nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1)
			l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: params, Nonfinite: allow}))
			for step := range l.Steps(4) {
				if step == 2 {
					tensor.Data[float32](params[0].Value)[3] = float32(math.Inf(1))
				}
			}
			return l.Close()
		})
	}
	require.ErrorContains(t, run(false), "weight is not finite (State.Nonfinite would save it)")
	require.Equal(t, []string{"step-00000002"}, folders(t, o.Save))
	o.Save = t.TempDir()
	require.NoError(t, run(true))
	require.Equal(t, []string{"step-00000004"}, folders(t, o.Save))
}
