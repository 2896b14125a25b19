package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/train/metrics"
)

// short is a training of about a second.
func short(t *testing.T) options {
	wait.ParkAtOnce.Store(true)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t,
		os.WriteFile(text, []byte(strings.Repeat("All the world's a stage, and all the men and women merely players. ", 12)), 0o666))
	return options{Options: lm.Options{Options: train.Options{Threads: 1, SaveEvery: 100, Quiet: true}, Layout: on(0, 1, 3), Layers: 2,
		Dim: 12, Heads: 6, KVHeads: 2, Seq: 9, Batch: 5, Steps: 20, Sample: 15, Optim: "adamw", DType: "float64", Seed: 3, Data: text}}
}

func trained(t *testing.T, o options) lm.Summary {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, o.run(&out))
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var s lm.Summary
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &s), out.String())
	require.Len(t, s.Losses, s.Steps)
	return s
}

func requireLosses(t *testing.T, want, got []metrics.Number, tol float64, what ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, float64(want[i]), float64(got[i]), tol, what...)
	}
}

// on is a layout without tensor parallelism.
func on(dp, fsdp, stage int) lm.Layout {
	return lay(dp, fsdp, stage, 1, false, 0, 1, 1, 0, 0)
}

// lay is a layout, with its numbers in the order of the fields.
func lay(dp, fsdp, stage, tp int, sp bool, async, cp, ep, pp, ring int) lm.Layout {
	l := parallel.Layout{DP: dp, FSDP: fsdp, TP: tp, CP: cp, EP: ep, PP: max(pp, 1), Ring: max(ring, 1)}
	return lm.Layout{Layout: l, Stage: stage, SP: sp, Async: async}
}

// layouts of up to six ranks; most of these numbers do not divide five sequences.
func layouts() (all []lm.Layout) {
	for _, l := range [][2]int{{2, 1}, {3, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 3}} {
		for stage := 1; stage <= 3; stage++ {
			if l[1] > 1 || stage == 3 {
				all = append(all, on(l[0], l[1], stage))
			}
		}
	}
	return append(all, []lm.Layout{lay(1, 1, 3, 2, false, 0, 1, 1, 0, 0), lay(1, 1, 3, 2, true, 0, 1, 1, 0, 0),
		lay(2, 1, 3, 2, true, 3, 1, 1, 0, 0),
		lay(1, 2, 3, 2, false, 0, 1, 1, 0, 0), lay(1, 2, 2, 2, true, 0, 1, 1, 0, 0), lay(1, 1, 3, 6, false, 0, 1, 1, 0, 0),
		lay(1, 1, 3, 6, true, 2, 1, 1, 0, 0),
		lay(1, 1, 3, 1, false, 0, 2, 1, 0, 0), lay(2, 2, 3, 1, false, 0, 2, 1, 0, 0),
		lay(1, 1, 3, 1, false, 0, 1, 1, 0, 3), lay(1, 2, 3, 1, false, 0, 2, 1, 0, 2), lay(1, 1, 3, 2, true, 0, 1, 1, 0, 2)}...)
}

// Every layout has the losses and the text of one rank, with one of two optimizers. The short form has a third of the layouts;
// TestGradNorms has others.
func TestLayouts(t *testing.T) {
	for k, optim := range []string{"adamw", "sgd"} {
		o := short(t)
		o.Optim, o.Steps = optim, 10
		want := trained(t, o)
		require.Less(t, want.FinalLoss, want.FirstLoss)
		require.NotEmpty(t, want.Sample)
		for i, l := range layouts() {
			if i%2 != k || i%8 > 1 && !reliability.Long(t) {
				continue
			}
			o.Layout = l
			got := trained(t, o)
			requireLosses(t, want.Losses, got.Losses, 1e-9, "%s %+v", optim, l)
			require.InDelta(t, float64(want.ValLoss), float64(got.ValLoss), 1e-9, "%s %+v", optim, l)
			require.Equal(t, want.Sample, got.Sample, "%s %+v", optim, l)
			require.Equal(t, want.Params, got.Params)
			require.Equal(t, l.Ranks(), got.Ranks)
			require.Positive(t, got.CommBytes["allreduce"]+got.CommBytes["reducescatterv"], "%+v", got.CommBytes)
		}
	}
}

func TestLongLayouts(t *testing.T) { reliability.AsLong(t, TestLayouts) }

// A checkpoint of one layout can be continued on another one, in the short form two times. All parts together have the losses of a run that
// never stopped.
func TestResumeElsewhere(t *testing.T) {
	o := short(t)
	layouts := []lm.Layout{lay(2, 1, 3, 2, false, 0, 1, 1, 0, 0), on(1, 1, 3), lay(1, 3, 3, 1, false, 0, 2, 1, 0, 0),
		lay(1, 2, 3, 2, true, 0, 1, 1, 0, 0), on(1, 2, 2)}
	if !reliability.Long(t) {
		layouts = layouts[2:]
	}
	o.Steps = 4 * len(layouts)
	want := trained(t, o)
	o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
	for _, l := range layouts {
		o.Layout = l
		o.Steps += 4
		got := trained(t, o)
		require.Equal(t, o.Steps-4, got.ResumedAt)
		requireLosses(t, want.Losses[:o.Steps], got.Losses, 1e-9, "%+v", l)
	}
	o.Heads, o.KVHeads = 3, 1 // parameters of the same sizes, but another model
	require.ErrorContains(t, o.run(new(bytes.Buffer)),
		"-resume: the checkpoint is of a model with -layers 2 -dim 12 -heads 6 -kv-heads 2 -seq 9, not -layers 2 -dim 12 -heads 3 -kv-heads 1")
	o.Heads, o.KVHeads = 6, 2
	last := trained(t, o) // nothing is left to do
	require.Equal(t, o.Steps, last.ResumedAt)
	require.Equal(t, want.Sample, last.Sample)
	require.InDelta(t, float64(want.ValLoss), float64(last.ValLoss), 1e-9)

	var out bytes.Buffer
	o.Quiet = false
	require.NoError(t, o.run(&out))
	require.Contains(t, out.String(), fmt.Sprintf("\n0 steps (%d in all), world size 2 ", o.Steps))
}

func TestLongResumeElsewhere(t *testing.T) { reliability.AsLong(t, TestResumeElsewhere) }

// A training that diverges ends.
func TestDiverged(t *testing.T) {
	o := short(t)
	o.DType, o.LR = "float32", 1e30
	require.ErrorContains(t, o.run(io.Discard), "optim: step 2: the norm of the gradients is NaN; "+
		"the first one that is not finite is that of tok.weight; the loss is NaN")
}

// Training works in each type of parameters, on goroutine ranks and on emulated GPUs; in the short form, on a layout each.
func TestTypesAndDevices(t *testing.T) {
	o, cuda := short(t), disttest.CUDA(t, emu.Config{Devices: 1, Lazy: true})
	o.Steps = 10
	want := trained(t, o)
	for dtype, tol := range map[string]float64{"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.05} {
		for i, l := range []lm.Layout{on(2, 1, 3), on(1, 2, 3), lay(1, 1, 3, 2, false, 0, 1, 1, 0, 0), lay(1, 2, 3, 2, true, 0, 1, 1, 0, 0),
			lay(1, 1, 3, 2, true, 3, 1, 1, 0, 0), lay(1, 2, 3, 1, false, 0, 2, 1, 0, 0)} {
			o.DType, o.Layout = dtype, l
			long := reliability.Long(t)
			if dtype == "bfloat16" && (i == 1 || long) || dtype == "float32" && (i == 4 || long && i%2 == 0) { // TestLayouts has float64
				requireLosses(t, want.Losses, trained(t, o).Losses, tol, "%s %+v", dtype, l)
			}
			if dtype == "float64" && i == 3 || dtype != "bfloat16" && long { // the emulator is slow
				many := o
				if many.Device = cuda; !long {
					many.Steps = 4
				}
				requireLosses(t, want.Losses[:many.Steps], trained(t, many).Losses, tol, "CUDA, %+v", l)
			}
		}
	}
}

func TestLongTypesAndDevices(t *testing.T) { reliability.AsLong(t, TestTypesAndDevices) }

func TestMisuse(t *testing.T) {
	for want, change := range map[string]func(o *options){
		"-dtype int64: float32, float64 or bfloat16":                  func(o *options) { o.DType = "int64" },
		"-dtype float16: float32, float64 or bfloat16":                func(o *options) { o.DType = "float16" },
		"-optim adam: adamw or sgd":                                   func(o *options) { o.Optim = "adam" },
		"-batch and -steps must be at least 1":                        func(o *options) { o.Steps = 0 },
		"-sample not negative":                                        func(o *options) { o.Sample = -1 },
		"-lr NaN: want a number that is not negative":                 func(o *options) { o.LR = math.NaN() },
		"-dp -1 -fsdp 1 -tp 1 -cp 1: ranks of an axis are at least 1": func(o *options) { o.DP = -1 },
		"-dp 0 -fsdp 0 -tp 1 -cp 1: ranks of an axis are at least 1":  func(o *options) { o.FSDP = 0 },
		"-sp needs -tp": func(o *options) { o.SP = true },
		"-cp 3: 2 heads of keys and values of a rank do not divide over 3 ranks": func(o *options) { o.CP = 3 },
		"-dp 0 -fsdp 1 -tp 1 -cp 1 -ring -1: ranks of an axis are at least 1":    func(o *options) { o.Ring = -1 },
		"int64[5,9]: 9 positions are fewer than the 10 ranks that divide them":   func(o *options) { o.Ring = 10 },
		"-dp 0 -fsdp 1 -tp 1 -cp 1 -ring 0: ranks of an axis are at least 1":     func(o *options) { o.Ring = 0 },
		"-async needs -sp": func(o *options) { o.TP, o.Async = 2, 4 },
		"do not divide over 4 ranks: the number of ranks must divide 6": func(o *options) { o.TP = 4 },
		"-stage 4: 1, 2 or 3": func(o *options) { o.Stage = 4 },
		"6 heads of queries cannot share 4 of keys and values":                            func(o *options) { o.KVHeads = 4 },
		"12 features do not divide into 5 heads":                                          func(o *options) { o.Heads = 5 },
		"Positions is 0, and must be positive":                                            func(o *options) { o.Seq = 0 },
		"a text of 81 tokens is too short: a window of 81 needs one more token as target": func(o *options) { o.Seq = 81 },
		"no such file":        func(o *options) { o.Data = "/none" },
		"-resume needs -save": func(o *options) { o.Resume = true },
		"-metrics x.txt: the name must end in .jsonl or .csv": func(o *options) { o.Metrics = "x.txt" },
	} {
		o := short(t)
		change(&o)
		require.ErrorContains(t, o.run(new(bytes.Buffer)), want)
	}
	for text, want := range map[string]string{"abc\n": "file: the last tenth is for the test: data: a text of 3 tokens is too short",
		"\xff\xfea\x00": "file: the text is UTF-16"} {
		o := short(t)
		o.Data = filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(o.Data, []byte(text), 0o666))
		require.ErrorContains(t, o.run(new(bytes.Buffer)), want)
	}
	for want, c := range map[string]struct {
		l lm.Layout
		n int
	}{"-fsdp 3 -tp 1 -cp 1 does not fit the launcher's 4 ranks": {on(0, 3, 3), 4},
		"-dp 2 -fsdp 3 -tp 1 -cp 1 does not fit the launcher's 4 ranks": {on(2, 3, 3), 4}} {
		require.EqualError(t, c.l.Fill(c.n), want)
	}
	l := on(0, 2, 3)
	require.NoError(t, l.Fill(6))
	require.Equal(t, on(3, 2, 3), l)
}

// TestLongLearns trains with the program's defaults, which takes a few minutes. The loss gets lower than that of a trigram model.
func TestLongLearns(t *testing.T) {
	reliability.SkipUnlessLong(t)
	o := options{Options: lm.Options{Options: train.Options{Quiet: true}, Layout: on(0, 1, 3), Layers: 4, Dim: 128, Heads: 4, Seq: 128,
		Batch: 16, Steps: 500, Optim: "adamw", DType: "float32", Seed: 9}}
	text, err := lm.Read("")
	require.NoError(t, err)
	cut := len(text) * 9 / 10
	bar := trigram(text[:cut], text[cut:])
	require.InDelta(t, 1.975, bar, 0.01)
	got := float64(trained(t, o).ValLoss)
	fmt.Printf("validation loss %.4f after %d steps, of a trigram %.4f\n", got, o.Steps, bar)
	require.Less(t, got, bar)
}

// trigram returns the mean loss of a model that predicts a byte from the two before it, smoothed as by Witten and Bell (1991).
func trigram(learn, test []byte) float64 {
	type seen struct{ total, kinds float64 }
	counts, contexts := map[string]float64{}, map[string]*seen{}
	for i := range learn {
		for n := range min(i, 2) + 1 {
			gram := string(learn[i-n : i+1])
			c := contexts[gram[:n]]
			if c == nil {
				c = &seen{}
				contexts[gram[:n]] = c
			}
			if counts[gram] == 0 {
				c.kinds++
			}
			counts[gram]++
			c.total++
		}
	}
	loss := 0.0
	for i := 2; i < len(test); i++ {
		p := 1.0 / 256
		for n := range 3 {
			gram := string(test[i-n : i+1])
			if c := contexts[gram[:n]]; c != nil {
				p = (counts[gram] + c.kinds*p) / (c.total + c.kinds)
			}
		}
		loss -= math.Log(p)
	}
	return loss / float64(len(test)-2)
}

// The flags make a training.
func TestFlags(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o := define(fs)
	require.NoError(t, fs.Parse([]string{"-steps", "1", "-layers", "1", "-dim", "16", "-seq", "8", "-sample", "0", "-json",
		"-data", short(t).Data}))
	require.Equal(t, "gpt", trained(t, o()).Example)
}

// The norm of each parameter's gradient is that of one rank, on every layout; in the short form, on some that TestLayouts leaves out.
func TestGradNorms(t *testing.T) {
	norms := func(l lm.Layout) (steps []grads.Step) {
		dir := t.TempDir()
		t.Setenv("RINGO_GRADS", dir)
		o := short(t)
		o.Layout, o.Steps, o.Sample = l, 3, 0
		trained(t, o)
		steps, err := grads.Read(dir)
		require.NoError(t, err)
		require.Len(t, steps, 3)
		return steps
	}
	want := norms(on(1, 1, 3))
	for k, l := range layouts() {
		if k%8 != 4 && k%8 != 7 && !reliability.Long(t) {
			continue
		}
		for i, s := range norms(l) {
			require.InDelta(t, *want[i].Loss, *s.Loss, 1e-10, "%+v", l)
			require.Len(t, s.Grads, len(want[i].Grads))
			for k, g := range s.Grads {
				require.Equal(t, want[i].Grads[k].Name, g.Name)
				require.InDelta(t, want[i].Grads[k].Norm, g.Norm, 1e-10, "%+v: %s in step %d", l, g.Name, i+1)
			}
		}
	}
}

func TestLongGradNorms(t *testing.T) { reliability.AsLong(t, TestGradNorms) }
