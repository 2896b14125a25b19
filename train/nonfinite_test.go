package train_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
	"github.com/ringo-ml/ringo/train"
)

// poisoned are 300 points, one of which is not finite.
type poisoned struct {
	points
	sample int
	bad    float64
	in     string // x, y, or nothing
}

func (poisoned) Len() int { return 300 }

func (d poisoned) Batch(idx []int, x, y tensor.Tensor) error {
	err := d.points.Batch(idx, x, y)
	for i, k := range idx {
		if k == d.sample && d.in != "" {
			to, at := x, 3*i+1
			if d.in == "y" {
				to, at = y, i
			}
			tensor.Data[float64](to)[at] = d.bad
		}
	}
	return err
}

// badRun is a training in which step 30 is not finite.
type badRun struct {
	train.Options
	data     poisoned
	ranks    int
	stage    int // of fsdp; 0: ddp
	noNorm   bool
	same     bool // rows on all ranks, as those have that divide layers
	micro    int  // microbatches of a step; 0: 1
	dtype    tensor.DType
	scaled   bool
	captured bool
	gpus     int                    // emulated; 0: the CPU
	weight   func(step int) float64 // of the loss; nil: 1
	classes  bool                   // the weight is that of a class
	steps    int
	log      bytes.Buffer
	opt      *optim.Optimizer // of rank 0
	scaler   *optim.Scaler
}

// badStep is the step whose batch has the bad sample, from 1.
const badStep, badSample = 30, 29*6 + 4

func newBadRun(t *testing.T) *badRun {
	x := &badRun{data: poisoned{sample: badSample, bad: math.NaN(), in: "x"}, ranks: 2, dtype: tensor.Float64, steps: 40}
	x.Save, x.SaveEvery, x.Threads = filepath.Join(t.TempDir(), "ckpt"), 5, 1
	return x
}

func (x *badRun) train() error {
	x.log.Reset()
	return x.Run(dist.Config{Ranks: x.ranks, Log: &x.log}, func(ctx context.Context, r *dist.Rank) error {
		model, params, norm, err := x.attach(r)
		if err != nil {
			return err
		}
		var scaler *optim.Scaler
		if x.scaled {
			scaler = &optim.Scaler{Scale: 8}
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Norm: norm, Scaler: scaler})
		if r.World.Rank() == 0 {
			x.opt, x.scaler = opt, scaler
		}
		tape := tensor.NewTape(r.Device)
		l := disttest.Must(train.Start(ctx, r, &x.Options, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
		last, weight := tensor.New(r.Device, tensor.Float64), 1.0
		update := func(in ...tensor.Tensor) error {
			scale := 1.0
			if scaler != nil {
				scale = scaler.Scale
			}
			n := max(1, x.micro)
			for k := range n {
				lo, hi := in[0].Dim(0)*k/n, in[0].Dim(0)*(k+1)/n
				in, y := tape.Input(in[0]).Slice(0, lo, hi).Cast(x.dtype), tape.Input(in[1]).Slice(0, lo, hi).Cast(x.dtype)
				loss := x.loss(model.Forward(in), y, weight)
				if x.captured {
					tensor.Copy(last, loss.Cast(tensor.Float64))
				} else {
					l.Sum("loss", loss.Cast(tensor.Float64))
				}
				opts := []tensor.BackwardOption{tensor.Scale(scale)}
				if k < n-1 {
					opts = append(opts, tensor.More())
				}
				tape.Backward(loss, opts...)
			}
			err := opt.Step()
			tape.Reset()
			return err
		}
		step := update
		if x.captured {
			c := capture.New(r.Device, update)
			defer c.Close()
			step = c.Run
		}
		rows := data.Config{Batch: 6, Sharder: r.World, Device: r.Device}
		if x.same {
			rows.Sharder = nil
		}
		batches := data.NewLoader(x.data, rows)
		for i, b := range l.Batches(batches, x.steps) {
			if x.weight != nil {
				weight = x.weight(i + 1)
			}
			err := step(b.X, b.Y)
			if x.captured {
				l.Sum("loss", last)
			}
			if err != nil {
				return err
			}
		}
		return l.Close()
	})
}

func (x *badRun) attach(r *dist.Rank) (model nn.Sequential, params nn.Params, norm optim.Norm, err error) {
	outs := 1
	if x.classes {
		outs = 2
	}
	model = nn.Sequential{nn.NewLinear(3, 5), nn.Tanh, nn.NewLinear(5, outs)}
	if x.same {
		return model, nn.Init(model, r.Device, x.dtype, 1), r.World, nil
	}
	if x.stage == 0 {
		params, err = ddp.Attach(r.World, model, ddp.Config{DType: x.dtype, Seed: 1})
		return model, params, nil, err
	}
	s := fsdp.New(fsdp.Config{Shard: r.World, Stage: x.stage, Seed: 1, DType: x.dtype})
	s.Unit(model)
	if !x.noNorm {
		norm = s
	}
	params, err = s.Attach(model)
	return model, params, norm, err
}

// loss is the mean of squares, or a cross-entropy.
func (x *badRun) loss(out, y tensor.Tensor, weight float64) tensor.Tensor {
	if !x.classes {
		return out.Sub(y).Square().Sum().Scale(weight / 6)
	}
	labels := y.Reshape(-1).Gt(y.Reshape(-1).Scale(0)).Cast(tensor.Int64)
	return nn.CrossEntropy(out, labels, ops.CrossEntropyOptions{Weights: tensor.FromSlice([]float64{1, weight}, 2), Count: 6})
}

// requireStopped requires an error at the bad step that has these texts, and that the checkpoint of step 25, which is sound, is the newest.
func (x *badRun) requireStopped(t *testing.T, err error, want ...string) {
	t.Helper()
	require.ErrorContains(t, err, fmt.Sprintf("step %d: ", x.data.sample/6+1))
	for _, text := range want {
		require.ErrorContains(t, err, text)
	}
	x.requireNewest(t, 25)
}

func (x *badRun) requireNewest(t *testing.T, step int) {
	t.Helper()
	path, err := ckpt.Latest(x.Save)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("step-%08d", step), filepath.Base(path))
	v, err := inspect.Verify(t.Context(), path, inspect.VerifyConfig{})
	require.NoError(t, err)
	require.Equal(t, [3]any{true, int64(0), int64(0)}, [3]any{v.OK, v.NaN, v.Inf})
}

func badWeight(step int) float64 {
	if step == badStep {
		return math.NaN()
	}
	return 1
}

// One sample that is not finite ends the training in the step that has it, and the error names the sample, the parameter and the rank.
func TestBadSample(t *testing.T) {
	named, batch := fmt.Sprintf("values are not finite in samples %d", badSample), fmt.Sprintf("of samples %d ", badSample/6*6)
	for name, c := range map[string]struct {
		change func(x *badRun)
		want   []string
	}{
		"one rank":               {func(x *badRun) { x.ranks = 1 }, []string{"the loss is NaN, values are not finite in"}},
		"infinite":               {func(x *badRun) { x.data.bad = math.Inf(1) }, []string{"the loss is ", named}},
		"label":                  {func(x *badRun) { x.data.in = "y" }, []string{"by the part of rank 1", named}},
		"one of four":            {func(x *badRun) { x.ranks = 4 }, []string{"by the part of rank 2", named}},
		"fsdp 1":                 {func(x *badRun) { x.stage = 1 }, []string{"by the part of rank 1", named}},
		"fsdp 2":                 {func(x *badRun) { x.stage, x.ranks = 2, 4 }, []string{"by the part of rank 2", named}},
		"fsdp 3":                 {func(x *badRun) { x.stage, x.data.bad = 3, math.Inf(-1) }, []string{named}},
		"no norm":                {func(x *badRun) { x.stage, x.noNorm = 3, true }, nil},
		"microbatches":           {func(x *badRun) { x.micro = 3 }, []string{"by the part of rank 1", named}},
		"captured":               {func(x *badRun) { x.captured = true }, []string{"the loss is NaN, by the part of rank 1", named}},
		"captured, microbatches": {func(x *badRun) { x.captured, x.micro = true, 3 }, []string{"the loss is NaN, by the part of rank 1", named}},
		"float16":                {func(x *badRun) { x.dtype = tensor.Float16 }, []string{named}},
		"weight":                 {func(x *badRun) { x.data.in, x.weight = "", badWeight }, []string{"the loss is NaN", batch}},
		"weight of a class": {func(x *badRun) { x.data.in, x.weight, x.classes = "", badWeight, true },
			[]string{"the loss is NaN", batch}},
		"emulated CUDA":           {func(x *badRun) { x.gpus = 1 }, []string{named}},
		"emulated CUDA, two GPUs": {func(x *badRun) { x.gpus, x.stage = 2, 3 }, []string{named}},
		"captured, emulated CUDA": {func(x *badRun) { x.gpus, x.captured = 1, true }, []string{named}},
		"device":                  {func(x *badRun) { x.Device = tensortest.Remotes(t) }, []string{named}},
		"device, two steps later": {func(x *badRun) {
			x.Device, x.data.sample = tensortest.Remotes(t), 27*6+4 // nobody reads values before the next checkpoint
		}, []string{"by the part of rank 1", "166"}},
	} {
		rest := []string{"one of four", "fsdp 1", "captured", "emulated CUDA", "emulated CUDA, two GPUs"}
		onGPU := emu.OnGPU() && strings.Contains(name, "CUDA") // only short tests run there
		if slices.Contains(rest, name) != reliability.Long(t) && !onGPU {
			continue
		}
		t.Run(name, func(t *testing.T) {
			x := newBadRun(t)
			if c.change(x); x.gpus > 0 {
				x.Device = disttest.CUDA(t, emu.Config{Devices: x.gpus, Lazy: true})
			}
			x.requireStopped(t, x.train(), append(c.want, "0.weight")...)
		})
	}
}

func TestLongBadSample(t *testing.T) { reliability.AsLong(t, TestBadSample) }

// A sample that several ranks have is named once, and so is the batch.
func TestBadSampleOfAllRanks(t *testing.T) {
	for want, in := range map[string]string{"values are not finite in samples 178": "x",
		"in the batch of samples 174 175 176 177 178 179": ""} {
		x := newBadRun(t)
		x.same, x.data.in = true, in
		if in == "" {
			x.weight = badWeight
		}
		err := x.train()
		x.requireStopped(t, err, want)
		require.Equal(t, 1, strings.Count(err.Error(), "178"), err)
	}
}

// With a Scaler, the step is skipped, as an overflow is, and training goes on.
func TestBadSampleWithScaler(t *testing.T) {
	x := newBadRun(t)
	x.dtype, x.scaled = tensor.Float16, true
	require.NoError(t, x.train())
	require.Equal(t, [2]any{39, 4.0}, [2]any{x.opt.Steps(), x.scaler.Scale})
	x.requireNewest(t, 40)
}

// Skip leaves out the step, says so, and training goes on; the metrics have its loss.
func TestSkippedSample(t *testing.T) {
	for _, stage := range []int{0, 3} {
		for _, remote := range []bool{false, true} {
			if remote != (stage > 0) && !reliability.Long(t) {
				continue
			}
			x := newBadRun(t)
			x.stage, x.Nonfinite, x.Metrics = stage, optim.Skip(1), filepath.Join(t.TempDir(), "m.jsonl")
			if remote {
				x.Device = tensortest.Remotes(t)
			}
			require.NoError(t, x.train())
			require.Equal(t, [2]int{39, 1}, [2]int{x.opt.Steps(), x.opt.Skipped()})
			require.Contains(t, x.log.String(), fmt.Sprintf("skipped, 1 of at most 1 steps one after another: optim: step 30: "+
				"the norm of the gradients is NaN; the first one that is not finite is that of 0.weight; the loss is NaN, "+
				"by the part of rank 1, values are not finite in samples %d\n", badSample))
			x.requireNewest(t, 40)
			text, err := os.ReadFile(x.Metrics)
			require.NoError(t, err)
			require.Contains(t, string(text), `"loss":"NaN"`)
		}
	}
}

func TestLongSkippedSample(t *testing.T) { reliability.AsLong(t, TestSkippedSample) }

// A step that is bad after a resume, and with -rebuild, ends the training too; the values of the steps before it are in the file.
func TestBadSampleAfterResume(t *testing.T) {
	for _, rebuild := range []string{"", "1"} {
		t.Setenv("RINGO_REBUILD", rebuild)
		x := newBadRun(t)
		x.steps, x.Metrics = 28, filepath.Join(t.TempDir(), "m.jsonl")
		require.NoError(t, x.train())
		x.Resume, x.steps, x.Options.SaveEvery = true, 40, 1
		require.ErrorContains(t, x.train(), "step 30: ")
		x.requireNewest(t, 29)
		steps, _ := valuesIn(t, x.Metrics, "loss")
		require.Len(t, steps, 29)
	}
}

// A loss that is not finite ends the training although the gradients are finite, or the loop does not know the optimizer.
func TestBadLoss(t *testing.T) {
	o := train.Options{Threads: 1, Quiet: true, Save: t.TempDir(), SaveEvery: 5}
	run := func() error {
		return o.Run(dist.Config{Ranks: 3}, func(ctx context.Context, r *dist.Rank) error {
			l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: nn.Init(nn.NewLinear(2, 2), r.Device, tensor.Float32, 1)}))
			for step := range l.Steps(12) {
				loss := 1.0
				if step+1 == 7 && r.World.Rank() == 2 {
					loss = math.Inf(1)
				}
				l.Sum("loss", tensor.FromSlice([]float64{loss}))
			}
			return l.Close()
		})
	}
	require.ErrorContains(t, run(), "train: step 7: the loss is not finite, by the part of rank 2")
	require.NoDirExists(t, filepath.Join(o.Save, "step-00000010"))
	o.Save, o.Nonfinite = t.TempDir(), optim.Skip(1)
	require.NoError(t, run())
}
