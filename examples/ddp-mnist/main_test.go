package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
	"github.com/ringo-ml/ringo/train"
)

const params = 784*512 + 512 + 512*512 + 512 + 512*10 + 10

// synthetics is how many synthetic images most tests train on: as many as the longest of them takes.
const synthetics = 2600

func short() options {
	wait.ParkAtOnce.Store(true)
	return options{Options: train.Options{Threads: 1, SaveEvery: 100, Quiet: true}, ranks: 1, epochs: 1, steps: 6, batch: 63, bucketMB: 1,
		model: "mlp", optim: "sgd", dtype: "float32", seed: 9, data: "synthetic"}
}

func trained(t *testing.T, o options) summary {
	t.Helper()
	return trainOn(t, o, synthetics, 300)
}

// trainOn trains on so many synthetic images, unless o has other numbers.
func trainOn(t *testing.T, o options, images, tests int) summary {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, runOn(o, images, tests, &out))
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var s summary
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &s))
	return s
}

// runOn is run on so many synthetic images, unless o has other numbers.
func runOn(o options, images, tests int, w io.Writer) error {
	if o.data != "synthetic" {
		return run(o, w)
	}
	dtype, err := o.check()
	if err != nil {
		return err
	}
	learn, err := synthetic(images, o.seed, dtype)
	if err != nil {
		return err
	}
	test, err := synthetic(tests, o.seed+1, dtype)
	if err != nil {
		return err
	}
	return o.run(dtype, learn, test, w)
}

// imageSet is the arguments of data.Synthetic.
type imageSet struct {
	n     int
	seed  uint64
	dtype tensor.DType
}

// sets keeps the sets of synthetic images: making them takes longer than most of the trainings here.
var sets = map[imageSet]*data.Images{}

func synthetic(n int, seed uint64, dtype tensor.DType) (*data.Images, error) {
	key := imageSet{n, seed, dtype}
	if sets[key] == nil {
		made, err := data.Synthetic(n, seed, dtype)
		if err != nil {
			return nil, err
		}
		sets[key] = made
	}
	return sets[key], nil
}

func TestSummary(t *testing.T) {
	o := short()
	o.ranks = 2
	s := trained(t, o)
	require.Equal(t, "ddp-mnist", s.Example)
	require.Equal(t, "local", s.Backend)
	require.Equal(t, [4]int{2, 1, 6, 1}, [4]int{s.Ranks, s.Threads, s.Steps, s.Epochs})
	require.Less(t, s.FinalLoss, s.FirstLoss)
	require.Equal(t, uint64(6*params*4), s.PayloadBytes)
	require.InEpsilon(t, 6*params*4, s.WireBytes, 0.001, "2(n-1)/n of the payload, but for slices of unequal size")
	require.Len(t, s.ParamsSHA256, 64)
	require.True(t, 0 < s.ExposedComm && s.ExposedComm < 1)
	require.Equal(t, s.ParamsSHA256, trained(t, o).ParamsSHA256, "the same bits again")
}

// TestParity checks, for this program, the README's promise that N ranks equal one: with 3 ranks, and in the long run with 2 and 4, too.
// There, float64 must agree to 1e-10, float32 to 1e-5, and bfloat16, whose gradients are rounded on each rank, to 2%. For the types other
// than float64, the seed matters: if rounding moves an activation across ReLU's corner, losses differ from then on (float32: by 1e-4), in
// PyTorch as here. With this seed, the program's default, that does not happen in 16 steps with AVX-512, AVX2 or plain Go (with AVX2 and 3
// ranks it does in step 17 to 20 of adamw).
func TestParity(t *testing.T) {
	for i, c := range []struct {
		optim, dtype string
		steps        int
		tol          float64
	}{{"adamw", "float64", 100, 1e-10}, {"sgd", "float32", 16, 1e-5}, {"sgd", "float64", 100, 1e-10}, {"adamw", "bfloat16", 20, 2e-2},
		{"adamw", "float32", 16, 1e-5}, {"sgd", "bfloat16", 20, 2e-2}} {
		if i > 0 && !reliability.Long(t) {
			break
		}
		o := short()
		o.optim, o.dtype, o.steps = c.optim, c.dtype, 4
		o.lr = map[string]float64{"sgd": 0.1, "adamw": 1e-3}[c.optim]
		if reliability.Long(t) {
			o.steps, o.batch, o.data = c.steps, 252, ""
		}
		many := []int{3}
		if reliability.Long(t) {
			many = []int{2, 3, 4}
		}
		require.LessOrEqual(t, disparity(t, o, min(c.tol, 1e-5), many), c.tol, "%s %s", c.optim, c.dtype)
	}
}

func TestLongParity(t *testing.T) { reliability.AsLong(t, TestParity) }

// disparity is the largest relative difference of the final loss on such numbers of ranks from that on one. First losses may differ by tol.
func disparity(t *testing.T, o options, tol float64, ranks []int) (worst float64) {
	one := trained(t, o)
	for _, o.ranks = range ranks {
		many := trained(t, o)
		require.InEpsilon(t, float64(one.FirstLoss), float64(many.FirstLoss), tol)
		worst = max(worst, math.Abs(float64(many.FinalLoss)/float64(one.FinalLoss)-1))
	}
	return worst
}

// A device whose memory Go code cannot access, with the same kernels, gives the same bits.
func TestDevice(t *testing.T) {
	for _, c := range []struct{ optim, dtype string }{{"sgd", "float32"}, {"adamw", "bfloat16"}, {"adamw", "float16"}} {
		if c.dtype != "bfloat16" && !reliability.Long(t) {
			continue
		}
		o := short()
		o.ranks, o.optim, o.dtype = 2, c.optim, c.dtype
		want := trained(t, o)
		o.Device = tensortest.Remotes(t)
		got := trained(t, o)
		require.Equal(t, [2]string{want.ParamsSHA256, want.LossesSHA256}, [2]string{got.ParamsSHA256, got.LossesSHA256}, "%+v", c)
		require.Equal(t, want.TestAccuracy, got.TestAccuracy)
	}
}

func TestLongDevice(t *testing.T) { reliability.AsLong(t, TestDevice) }

// The counted bytes are the planned ones; in the short form, of 16-bit values with masters.
func TestPlan(t *testing.T) {
	for i, c := range []struct{ optim, dtype string }{
		{"sgd", "float32"}, {"adamw", "float32"}, {"adamw", "bfloat16"}, {"adamw", "float16"}, {"sgd", "float64"},
	} {
		if i != 2 && !reliability.Long(t) {
			continue
		}
		o := short()
		o.ranks, o.steps, o.optim, o.dtype = 3, 3, c.optim, c.dtype
		s := trained(t, o)
		for _, it := range s.Plan.Memory {
			require.Equal(t, it.Bytes, s.Memory[it.Name].Peak, "%+v: %s", c, it.Name)
		}
		require.Greater(t, s.Memory["activations"].Peak, 0)
		require.InEpsilon(t, 3*s.Plan.Sent/3, s.WireBytes, 0.001, "%+v", c) // rank 0 has the largest slices
	}
}

func TestLongPlan(t *testing.T) { reliability.AsLong(t, TestPlan) }

func TestFiles(t *testing.T) {
	o := short()
	dir := t.TempDir()
	o.ranks, o.Trace, o.Plot = 2, filepath.Join(dir, "trace.json"), filepath.Join(dir, "loss.svg")
	trained(t, o)
	svg, err := os.ReadFile(o.Plot)
	require.NoError(t, err)
	require.Contains(t, string(svg), "test accuracy")
	text, err := os.ReadFile(o.Trace)
	require.NoError(t, err)
	var tr struct {
		TraceEvents []struct {
			Name, Ph string
			Pid, Tid int
		}
	}
	require.NoError(t, json.Unmarshal(text, &tr))
	seen := map[string]bool{}
	for _, e := range tr.TraceEvents {
		if e.Ph == "X" {
			seen[fmt.Sprint(e.Name, e.Pid)] = true
		}
	}
	for _, want := range []string{"matmul0", "matmul1", "allreduce:direct0", "allreduce:direct1"} {
		require.True(t, seen[want], want)
	}
}

// TestResume: a run that stops and resumes, in the middle of an epoch or at its end, has the same bits in losses, accuracies and parameters
// as a run that does not stop. On another number of ranks they are equal up to rounding. The long form stops at the end, too, and resumes
// where nothing is left to do.
func TestResume(t *testing.T) {
	o := short()
	o.ranks, o.batch, o.optim, o.steps = 2, 75, "adamw", 6
	trained := func(t *testing.T, o options) summary { return trainOn(t, o, 300, 300) } // 4 steps an epoch
	want, elsewhere := trained(t, o), t.TempDir()
	for _, stop := range []int{4, 3} {
		if stop == 4 && !reliability.Long(t) {
			continue
		}
		if o.Save, o.SaveEvery, o.steps = t.TempDir(), stop, stop; reliability.Long(t) {
			o.SaveEvery = 2
		}
		trained(t, o)
		if stop == 3 {
			require.NoError(t, os.CopyFS(elsewhere, os.DirFS(o.Save)))
		}
		o.steps, o.Resume = 6, true
		got := trained(t, o)
		require.Equal(t, stop, got.ResumedAt)
		require.Equal(t, want.LossesSHA256, got.LossesSHA256, "stopped after %d", stop)
		require.Equal(t, want.ParamsSHA256, got.ParamsSHA256)
		require.Equal(t, [2]int{want.Steps, want.Epochs}, [2]int{got.Steps, got.Epochs})
		require.Equal(t, want.TestAccuracy, got.TestAccuracy)

		if o.ranks = 3; reliability.Long(t) {
			got = trained(t, o) // nothing is left to do
			require.Equal(t, [2]int{6, 6}, [2]int{got.Steps, got.ResumedAt})
			require.Equal(t, want.ParamsSHA256, got.ParamsSHA256)
		}
		o.ranks, o.Resume = 2, false
	}
	o.ranks, o.Save, o.Resume, o.steps = 3, elsewhere, true, 6
	got := trained(t, o)
	require.Equal(t, 3, got.ResumedAt)
	require.InEpsilon(t, float64(want.FinalLoss), float64(got.FinalLoss), 1e-4)

	var out bytes.Buffer
	o.Quiet, o.steps = false, 8
	require.NoError(t, runOn(o, 300, 300, &out))
	require.Contains(t, out.String(), "2 steps (8 in all), world size 3 ")
	out.Reset()
	o.Save, o.Resume, o.steps = "", false, 1
	require.NoError(t, runOn(o, 300, 300, &out))
	require.Contains(t, out.String(), "1 steps, world size 3 ")
}

func TestLongResume(t *testing.T) { reliability.AsLong(t, TestResume) }

func TestBadFlags(t *testing.T) {
	for want, change := range map[string]func(o *options){
		"-dtype int32":       func(o *options) { o.dtype = "int32" },
		"unknown dtype":      func(o *options) { o.dtype = "float" },
		"-model rnn":         func(o *options) { o.model = "rnn" },
		"-optim lion":        func(o *options) { o.optim = "lion" },
		"-resume needs":      func(o *options) { o.Resume = true },
		"-save-every -1":     func(o *options) { o.SaveEvery = -1 },
		"-ranks":             func(o *options) { o.ranks = 0 },
		"-bucket-mb must be": func(o *options) { o.bucketMB = 1e-9 },
		"-lr must not":       func(o *options) { o.lr = math.NaN() },
		"/nowhere/at/all":    func(o *options) { o.data = "/nowhere/at/all" },
		"-lr must not be":    func(o *options) { o.lr = -1 },
		"must be at least 1": func(o *options) { o.batch = 0 },
		"no-such-dir":        func(o *options) { o.Plot = "no-such-dir/loss.svg" },
	} {
		o := short()
		o.steps = 1
		change(&o)
		require.ErrorContains(t, runOn(o, 100, 10, &bytes.Buffer{}), want)
	}
}

// Training in 16 bits is close to training in float32, with half the bytes between ranks, and with the same bits for any number of threads.
// The short form has the first steps.
func TestHalf(t *testing.T) {
	o := short()
	if o.ranks, o.steps, o.optim, o.lr = 2, 10, "adamw", 2e-3; reliability.Long(t) {
		o.steps = 40
	}
	trained := func(t *testing.T, o options) summary { return trainOn(t, o, synthetics, 1000) }
	full := trained(t, o)
	for _, o.dtype = range []string{"bfloat16", "float16"} {
		if o.dtype == "float16" && !reliability.Long(t) {
			break
		}
		half := trained(t, o)
		require.InEpsilon(t, float64(full.FirstLoss), float64(half.FirstLoss), 2e-3)
		require.NotEqual(t, full.FirstLoss, half.FirstLoss)
		require.InDelta(t, float64(full.FinalLoss), float64(half.FinalLoss), 0.02)
		require.InDelta(t, full.TestAccuracy, half.TestAccuracy, 0.01)
		require.Equal(t, full.PayloadBytes/2, half.PayloadBytes)
		few, two := half, o
		if two.steps, two.Threads = 10, 2; reliability.Long(t) {
			require.Less(t, float64(half.FinalLoss), 0.05)
			one := two
			one.Threads = 1
			few = trained(t, one)
		}
		require.Equal(t, few.ParamsSHA256, trained(t, two).ParamsSHA256)
	}
}

func TestLongHalf(t *testing.T) { reliability.AsLong(t, TestHalf) }

func TestFloat64IsFiner(t *testing.T) {
	o := short()
	f32 := trained(t, o)
	o.dtype = "float64"
	f64 := trained(t, o)
	require.InDelta(t, float64(f64.FinalLoss), float64(f32.FinalLoss), 1e-4)
	require.Greater(t, math.Abs(float64(f64.FinalLoss)-float64(f32.FinalLoss)), 0.0)
}

// trainedCNN returns the parameters of the convolutional network after ten steps in float64.
func trainedCNN(t *testing.T, ranks int) (values []float64) {
	o := short()
	if o.model, o.dtype, o.batch, o.lr = "cnn", "float64", 8, 0.1; reliability.Long(t) {
		o.batch = 20
	}
	images, err := synthetic(300, o.seed, tensor.Float64)
	require.NoError(t, err)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: ranks, Exact: true}, func(ctx context.Context, r *dist.Rank) error {
		x, err := newTrainer(ctx, o, tensor.Float64, r, images, images)
		if err != nil {
			return err
		}
		for step, b := range x.images.Epoch(ctx, 0) {
			if step == 10 {
				break
			}
			if err := x.advance(b); err != nil {
				return err
			}
		}
		if r.World.Rank() == 0 {
			for _, p := range x.params {
				values = append(values, tensor.Floats(p.Value)...)
			}
		}
		return x.loop.Close()
	}))
	return values
}

// Parameters of the convolutional network are those of one rank, also if the parts of the batch have different sizes.
func TestCNNParity(t *testing.T) {
	want := trainedCNN(t, 1)
	require.Len(t, want, 32*9+32+64*32*9+64+64*7*7*128+128+1280+10)
	for _, ranks := range []int{3, 2} {
		if ranks == 2 && !reliability.Long(t) {
			break
		}
		got := trainedCNN(t, ranks)
		for i := range want {
			if math.Abs(want[i]-got[i]) > 1e-10 {
				require.InDelta(t, want[i], got[i], 1e-10, "element %d with %d ranks", i, ranks)
			}
		}
	}
}

func TestLongCNNParity(t *testing.T) { reliability.AsLong(t, TestCNNParity) }

// The convolutional network reaches 99% on MNIST in three epochs.
func TestLongCNNLearns(t *testing.T) {
	reliability.SkipUnlessLong(t)
	o := short()
	o.model, o.data, o.steps, o.epochs, o.batch, o.Threads = "cnn", "", 0, 3, 128, 2
	require.GreaterOrEqual(t, trained(t, o).TestAccuracy, 0.99)
}

// A training that has diverged ends; with -skip-nonfinite its summary in JSON says what its losses are.
func TestDiverged(t *testing.T) {
	o := short()
	o.lr = 1e30
	var out bytes.Buffer
	require.ErrorContains(t, runOn(o, 1000, 100, &out), "the norm of the gradients is NaN")
	o.Nonfinite = optim.Skip(1000)
	require.NoError(t, runOn(o, 1000, 100, &out))
	require.Contains(t, out.String(), `"final_loss":"NaN"`)
}
