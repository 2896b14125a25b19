package train_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/timeline"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
	"github.com/ringo-ml/ringo/train"
)

// points are 20 samples of a linear function of 3 numbers.
type points struct{}

func (points) Len() int { return 20 }

func (points) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Float64, Dims: []int{3}}, tensor.Shape{DType: tensor.Float64, Dims: []int{1}}
}

func (points) Batch(idx []int, x, y tensor.Tensor) error {
	for i, k := range idx {
		sum := 0.0
		for j := range 3 {
			v := math.Sin(float64(3*k + j))
			tensor.Data[float64](x)[3*i+j] = v
			sum += float64(j+1) * v
		}
		tensor.Data[float64](y)[i] = sum
	}
	return nil
}

// run is a training of the points.
type run struct {
	train.Options
	ranks, steps int
	micro        int // batches of a step of the optimizer; 0: 1
	pauses       []int
	sharded      bool
	lr           float64                                           // 0: 0.05
	each         func(r *dist.Rank, step int, l *train.Loop) error // after a step
	closed       func(r *dist.Rank)                                // after Close
	log          bytes.Buffer
}

// result is what rank 0 knows at the end.
type result struct {
	losses  []float64
	weights []float64
	resumed int
}

func (t *run) train() (res result, err error) {
	if t.Threads == 0 {
		t.Threads = 1
	}
	t.log.Reset()
	err = t.Run(dist.Config{Ranks: max(1, t.ranks), Log: &t.log}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(3, 5), nn.Tanh, nn.NewLinear(5, 1)}
		var params nn.Params
		var norm optim.Norm
		if t.sharded {
			s := fsdp.New(fsdp.Config{Shard: r.World, Stage: 3, Seed: 1, DType: tensor.Float64})
			s.Unit(model)
			norm = s
			params = disttest.Must(s.Attach(model))
		} else {
			params = disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: cmp.Or(t.lr, 5e-2), Clip: 1, Norm: norm})
		tape := tensor.NewTape(r.Device, tensor.Trace(r.Trace))
		batches := data.NewLoader(points{}, data.Config{Batch: 6, Sharder: r.World, Device: r.Device})
		l := disttest.Must(train.Start(ctx, r, &t.Options, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
		train := func(step int, b data.Batch) {
			loss := nn.MSE(model.Forward(tape.Input(b.X)), b.Y)
			l.Sum("loss", loss)
			if (step+1)%max(1, t.micro) != 0 {
				tape.Backward(loss, tensor.More())
			} else {
				tape.Backward(loss)
				disttest.OK(opt.Step())
			}
			tape.Reset()
			if (step+1)%batches.Steps() == 0 {
				l.Log("epoch", float64((step+1)/batches.Steps()))
			}
			if t.each != nil {
				disttest.OK(t.each(r, step, l))
			}
		}
		for _, upto := range append(t.pauses, t.steps) { // loops one after the other go on where the last one ended
			for step, b := range l.Batches(batches, upto) {
				train(step, b)
			}
		}
		err := l.Close()
		if t.closed != nil {
			t.closed(r)
		}
		if r.World.Rank() == 0 {
			_, res.losses = l.Values("loss")
			_, res.resumed = l.Done()
			for _, p := range params {
				res.weights = append(res.weights, tensor.Floats(p.Local)...)
			}
		}
		return err
	})
	return res, err
}

// The values of all ranks are those of one, in memory, in both kinds of file, and in the picture.
func TestValues(t *testing.T) {
	one := run{steps: 11}
	want, err := one.train()
	require.NoError(t, err)
	require.Len(t, want.losses, 11)
	require.Less(t, want.losses[8], want.losses[0]/2, "of the same rows")
	for _, ranks := range []int{2, 3} {
		dir := t.TempDir()
		for _, ext := range []string{".jsonl", ".csv"} {
			many := run{ranks: ranks, steps: 11}
			many.Metrics, many.Plot = filepath.Join(dir, "m"+ext), filepath.Join(dir, "p.svg")
			got, err := many.train()
			require.NoError(t, err)
			require.InDeltaSlice(t, want.losses, got.losses, 1e-12)
			many.pauses = []int{2, 2, 5}
			paused, err := many.train()
			require.NoError(t, err)
			require.Equal(t, got, paused)
			steps, values := valuesIn(t, many.Metrics, "loss")
			require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, steps)
			require.Equal(t, got.losses, values)
			steps, values = valuesIn(t, many.Metrics, "epoch")
			require.Equal(t, []int{4, 8}, steps)
			require.Equal(t, []float64{1, 2}, values)
		}
		svg, err := os.ReadFile(filepath.Join(dir, "p.svg"))
		require.NoError(t, err)
		require.Contains(t, string(svg), "loss")
	}
}

// A timeline has the steps and their phases, of all ranks in one file or in one for each.
func TestTimeline(t *testing.T) {
	for name, written := range map[string]int{"all.json": 1, "%r.json": 2} {
		dir := t.TempDir()
		r := run{ranks: 2, steps: 5}
		r.Trace, r.Save, r.SaveEvery = filepath.Join(dir, name), filepath.Join(dir, "ckpt"), 2
		_, err := r.train()
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(t, err)
		require.Len(t, files, written)
		var ranks []timeline.Rank
		for _, file := range files {
			f, err := os.Open(file)
			require.NoError(t, err)
			some, err := timeline.Read(f)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.Len(t, some, 2/len(files))
			ranks = append(ranks, some...)
		}
		require.Len(t, ranks, 2)
		for i, rank := range ranks {
			require.Equal(t, i, rank.Rank)
			requirePhases(t, rank.Spans)
		}
	}
}

// requirePhases requires what a rank does in 5 steps, with a checkpoint after two of them and at the end.
func requirePhases(t *testing.T, spans []trace.Span) {
	t.Helper()
	n, kernels := map[string]int{}, map[string]string{}
	for _, s := range spans {
		switch s.Track {
		case trace.Steps:
			n[s.Name]++
		case trace.Compute:
			for _, phase := range spans {
				if phase.Track == trace.Steps && phase.Name != trace.StepName && phase.Start <= s.Start && s.End <= phase.End {
					kernels[s.Name] = phase.Name
				}
			}
		}
	}
	require.Equal(t, [5]int{5, 5, 5, 5, 3}, [5]int{n[trace.StepName], n["forward"], n["backward"], n["optimizer"], n["checkpoint"]})
	require.GreaterOrEqual(t, n["loader"], 5)
	require.Positive(t, n["values"])
	require.Equal(t, "optimizer", kernels["adam"])
	require.Equal(t, "backward", kernels["tanh_grad"])
	require.Equal(t, "forward", kernels["mse"])
}

// valuesIn reads a file of values.
func valuesIn(t *testing.T, file, name string) (steps []int, values []float64) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var step int
		var value float64
		if filepath.Ext(file) == ".csv" {
			var at float64
			var rest string
			if n, _ := fmt.Sscanf(line, "%d,%f,%s", &step, &at, &rest); n < 3 {
				continue
			}
			of, number, _ := strings.Cut(rest, ",")
			if of != name {
				continue
			}
			_, err := fmt.Sscan(number, &value)
			require.NoError(t, err)
		} else {
			var row map[string]float64
			require.NoError(t, json.Unmarshal([]byte(line), &row), line)
			v, ok := row[name]
			if !ok {
				continue
			}
			step, value = int(row["step"]), v
		}
		steps, values = append(steps, step), append(values, value)
	}
	return steps, values
}

// A training that ends, or fails between checkpoints, and goes on has the values and the parameters of one that does not
// stop, under ddp and fsdp, and its file each value once.
func TestResume(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		for _, ext := range []string{".jsonl", ".csv"} {
			if sharded != (ext == ".csv") && !reliability.Long(t) {
				continue
			}
			whole := run{ranks: 2, steps: 13, sharded: sharded}
			want, err := whole.train()
			require.NoError(t, err)

			x := run{ranks: 2, steps: 7, sharded: sharded}
			x.Save, x.SaveEvery, x.Metrics = filepath.Join(t.TempDir(), "new", "ckpt"), 3, filepath.Join(t.TempDir(), "m"+ext)
			x.Resume, x.ResumeStep = true, 5
			_, err = x.train()
			require.ErrorContains(t, err, "-resume: "+x.Save+" has no checkpoints")
			x.Resume, x.ResumeStep = false, 0
			_, err = x.train()
			require.NoError(t, err)
			require.DirExists(t, filepath.Join(x.Save, "step-00000007"), "the last step is saved")

			_, err = x.train()
			require.ErrorContains(t, err, x.Save+" holds checkpoints; -resume goes on from them")

			x.Resume, x.steps = true, 13
			broken := errors.New("broken")
			x.each = func(r *dist.Rank, step int, l *train.Loop) error {
				if step == 10 { // behind the checkpoint of step 9
					return errors.Join(broken, l.Flush())
				}
				return nil
			}
			_, err = x.train()
			require.ErrorIs(t, err, broken)
			require.Contains(t, x.log.String(), "resumed at step 7\n")
			require.NotContains(t, x.log.String(), "the checkpoint replaces")

			x.each = nil
			got, err := x.train()
			require.NoError(t, err)
			require.Equal(t, 9, got.resumed)
			require.Equal(t, want.losses, got.losses)
			require.Equal(t, want.weights, got.weights)
			steps, values := valuesIn(t, x.Metrics, "loss")
			require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, steps)
			require.Equal(t, want.losses, values)

			again, err := x.train()
			require.NoError(t, err, "there is nothing left to do")
			require.Equal(t, want.weights, again.weights)
		}
	}
}

func TestLongResume(t *testing.T) { reliability.AsLong(t, TestResume) }

// Where the newest checkpoint is damaged, a resume ends with the way back to the one before it.
func TestResumeFromDamaged(t *testing.T) {
	x := run{steps: 4}
	x.Save, x.SaveEvery = t.TempDir(), 2
	_, err := x.train()
	require.NoError(t, err)
	newest, before := filepath.Join(x.Save, "step-00000004"), filepath.Join(x.Save, "step-00000002")
	name := filepath.Join(newest, "model.safetensors")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	require.NoError(t, os.WriteFile(name, text, 0o666))
	x.Resume, x.steps = true, 6
	_, err = x.train()
	require.ErrorContains(t, err,
		"the checkpoint before it is "+before+": verify it, and go on from there with -resume=step-00000002, or give step-00000004 another name")
	require.NoError(t, os.Rename(newest, newest+"-damaged"))
	got, err := x.train()
	require.NoError(t, err)
	require.Equal(t, 2, got.resumed)
}

// A learning rate that was changed before a resume is not replaced silently.
func TestResumeWithAnotherLearningRate(t *testing.T) {
	x := run{steps: 2}
	x.Save = t.TempDir()
	_, err := x.train()
	require.NoError(t, err)
	x.Resume, x.lr = true, 0.01
	_, err = x.train()
	require.NoError(t, err)
	require.Contains(t, x.log.String(), "the checkpoint replaces the learning rate 0.01 by 0.05 (-override lr: not)\n")
}

// A script that reads nothing does not make the loop lose values: more steps and more parts than it keeps on the device.
func TestWindow(t *testing.T) {
	o := train.Options{Metrics: filepath.Join(t.TempDir(), "m.jsonl")}
	require.NoError(t, o.Run(dist.Config{Ranks: 2, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{}))
		one, n := tensor.FromSlice([]float32{1}, 1), 1543
		for step := range l.Steps(n) {
			l.Sum("one", one)
			l.Sum("one", one) // of a microbatch
			l.Log("number", float64(step))
			if step%3 == 0 {
				l.Sum("third", one)
			}
		}
		disttest.OK(l.Close())
		steps, values := l.Values("one")
		for i := range n {
			if steps[i] != i+1 || values[i] != 4 {
				return fmt.Errorf("value %d is %v of step %d", i, values[i], steps[i])
			}
		}
		if third, _ := l.Values("third"); len(third) != (n+2)/3 || third[1] != 4 {
			return fmt.Errorf("%d thirds: %v …", len(third), third[:2])
		}
		return nil
	}))
	text, err := os.ReadFile(o.Metrics)
	require.NoError(t, err)
	require.Equal(t, 1543, strings.Count(string(text), "\n"), "a line a step")
	steps, values := valuesIn(t, o.Metrics, "one")
	for i := range steps {
		require.Equal(t, [2]float64{float64(i + 1), 4}, [2]float64{float64(steps[i]), values[i]})
	}
}

// Rank 0 writes an event file, and a run that goes on another one.
func TestTensorBoard(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o := train.Flags(fs)
	require.NoError(t, fs.Parse([]string{"-save", t.TempDir(), "-tensorboard", filepath.Join(t.TempDir(), "events")}))
	x := run{ranks: 2, steps: 3, Options: *o}
	for files := range 2 {
		_, err := x.train()
		require.NoError(t, err)
		names, err := filepath.Glob(filepath.Join(x.TensorBoard, "events.out.tfevents.*"))
		require.NoError(t, err)
		require.Len(t, names, files+1)
		text, err := os.ReadFile(names[files])
		require.NoError(t, err)
		require.Equal(t, x.steps-3*files, strings.Count(string(text), "loss"), "a value of each step")
		x.Resume, x.steps = true, 6
	}
}

// Memory that Go code cannot touch makes no difference.
func TestDevice(t *testing.T) {
	x := run{ranks: 2, steps: 9}
	want, err := x.train()
	require.NoError(t, err)
	x.Device = tensortest.Remotes(t)
	got, err := x.train()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// What a person sees comes from the loop: how far it is, the newest loss, and a step that takes long, until it is over.
func TestProgress(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, os.Interrupt) // the first call makes channels of the process, which must not be the bubble's
	signal.Stop(heard)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := &train.Options{Threads: 1}
		require.NoError(t, o.Run(dist.Config{Log: &out}, func(ctx context.Context, r *dist.Rank) error {
			l := disttest.Must(train.Start(ctx, r, o, ckpt.State{}))
			for step := range l.Steps(4) {
				time.Sleep(time.Second)
				l.Sum("loss", tensor.FromSlice([]float64{float64(step)}, 1))
				if step == 3 {
					time.Sleep(9 * time.Second)
				}
			}
			time.Sleep(time.Minute)
			return l.Close()
		}))
		require.Equal(t, "step 3 of 4  loss 1.0000  1 steps/s, 1s left\nstep 4 has run for more than 5s\n"+
			"step 4 of 4  loss 3.0000  0.3077 steps/s, 0s left\n", out.String())
	})
}

// A break counts the step that it is in.
func TestBreak(t *testing.T) {
	dir := t.TempDir()
	o := train.Options{Save: dir}
	require.NoError(t, o.Run(dist.Config{Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1)}))
		for step := range l.Steps(100) {
			if step == 4 {
				break
			}
		}
		return l.Close()
	}))
	require.DirExists(t, filepath.Join(dir, "step-00000005"))
}

// A last step that SaveEvery has saved is saved once; the script's own state is saved and loaded; nothing else stays in the directory.
func TestSavedOnce(t *testing.T) {
	o := train.Options{Save: t.TempDir(), SaveEvery: 2, Keep: 3}
	for _, want := range []int{0, 4} {
		require.NoError(t, o.Run(dist.Config{Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			seen := 0
			l := disttest.Must(train.Start(ctx, r, &o,
				ckpt.State{Params: nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1), Extra: map[string]any{"seen": &seen}}))
			require.Equal(t, want, seen)
			for range l.Steps(want + 4) {
				seen++
			}
			require.Equal(t, want+4, seen)
			return l.Close()
		}))
		o.Resume = true
	}
	all, err := os.ReadDir(o.Save)
	require.NoError(t, err)
	var names []string
	for _, x := range all {
		names = append(names, x.Name())
	}
	require.Equal(t, []string{"step-00000004", "step-00000006", "step-00000008"}, names)
}

// A rank that fails leaves its loop at once: the others hear of it, and nobody waits.
func TestOneRankFails(t *testing.T) {
	broken := errors.New("broken")
	x := run{ranks: 3, steps: 20}
	x.Save, x.SaveEvery = t.TempDir(), 3
	x.each = func(r *dist.Rank, step int, l *train.Loop) error {
		if step == 4 && r.World.Rank() == 1 { // a step that is not saved: the others are on their way into the next one
			return broken
		}
		return nil
	}
	_, err := x.train()
	require.ErrorIs(t, err, broken)
	path, err := ckpt.Latest(x.Save)
	require.NoError(t, err)
	require.Equal(t, "step-00000003", filepath.Base(path))
}

// What is not finite is written as text in JSON, is in a checkpoint, and leaves a picture.
func TestNotFinite(t *testing.T) {
	var file string
	o := train.Options{Save: filepath.Join(t.TempDir(), "c"), Metrics: filepath.Join(t.TempDir(), "m.jsonl"),
		Plot: filepath.Join(t.TempDir(), "p.png")}
	once := func(want ...float64) {
		require.NoError(t, o.Run(dist.Config{Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1)}))
			for step := range l.Steps(len(want)) {
				l.Log("x", want[step])
			}
			_, got := l.Values("x")
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return l.Close()
		}))
	}
	once(math.NaN(), math.Inf(1))
	text, err := os.ReadFile(o.Metrics)
	require.NoError(t, err)
	file = string(text)
	require.Contains(t, file, `"x":"NaN"}`)
	require.Contains(t, file, `"x":"+Inf"}`)
	o.Resume = true
	once(math.NaN(), math.Inf(1), 0.1)
}

// What cannot be written is an error before the first step, on all ranks.
func TestEarly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	for want, o := range map[string]train.Options{
		"-threads -1":             {Threads: -1},
		"-save-every -3":          {SaveEvery: -3, Save: "x"},
		"-resume needs -save":     {Resume: true},
		"must end in .jsonl":      {Metrics: "x.txt"},
		"must end in .svg":        {Plot: "x.jpg"},
		"-plot: open /nowhere/at": {Plot: "/nowhere/at/all.svg"},
		"-trace: open /nowhere":   {Trace: "/nowhere/t.json"},
		"-metrics: open /nowhere": {Metrics: "/nowhere/t.csv"},
		"-save: mkdir":            {Save: filepath.Join(file, "below")},
		"-tensorboard: mkdir":     {TensorBoard: filepath.Join(file, "below")},
	} {
		x := run{Options: o, ranks: 2, steps: 3, each: func(*dist.Rank, int, *train.Loop) error { panic("trained") }}
		_, err := x.train()
		require.ErrorContains(t, err, want)
	}
}
