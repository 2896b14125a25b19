package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/train/metrics"
)

// shortMixture is a training of about a second.
func shortMixture(t *testing.T) options {
	wait.ParkAtOnce.Store(true)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t,
		os.WriteFile(text, []byte(strings.Repeat("All the world's a stage, and all the men and women merely players. ", 12)), 0o666))
	return options{lm.Options{Options: train.Options{Threads: 1, SaveEvery: 100, Quiet: true},
		Layout: lm.Layout{Layout: parallel.Layout{FSDP: 1, TP: 1, CP: 1, EP: 1, PP: 1, Ring: 1}, Stage: 3}, Layers: 2, Dim: 12,
		Heads: 6, KVHeads: 2, Seq: 9, Batch: 5, Steps: 20, Sample: 15, Optim: "adamw", DType: "float64", Seed: 3, Data: text}, mixtures["aux"]}
}

func trained(t *testing.T, o options) summary {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, o.run(&out))
	var s summary
	require.NoError(t, json.Unmarshal(out.Bytes(), &s), out.String())
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

// mixtures are different models with experts.
var mixtures = map[string]mixture{
	"aux":      {experts: 4, topK: 2, aux: 0.01},
	"bias":     {experts: 4, topK: 2, shared: 1, bias: 0.01},
	"capacity": {experts: 4, topK: 1, capacity: 0.9, aux: 0.01},
}

// withExperts are layouts in which ranks share experts, or have all of them.
func withExperts() []lm.Layout {
	l := func(dp, fsdp, tp, cp, ep int) lm.Layout {
		return lm.Layout{Layout: parallel.Layout{DP: dp, FSDP: fsdp, TP: tp, CP: cp, EP: ep, PP: 1, Ring: 1}, Stage: 3}
	}
	return []lm.Layout{l(1, 1, 1, 1, 2), l(1, 1, 1, 1, 4), l(2, 1, 1, 1, 2), l(1, 2, 1, 1, 2), l(2, 2, 1, 1, 2), l(1, 1, 2, 1, 2),
		l(1, 2, 2, 1, 1), l(3, 1, 1, 1, 1), l(1, 1, 1, 2, 2), divided(l(1, 1, 2, 1, 2)), divided(l(1, 2, 2, 1, 1)), divided(l(2, 1, 2, 1, 2))}
}

// divided is l with sequence parallelism.
func divided(l lm.Layout) lm.Layout {
	l.SP = true
	return l
}

// Every layout has the losses, the balance and the text of one rank, with one of the mixtures; in the short form, two layouts of each.
func TestLayoutsOfExperts(t *testing.T) {
	for k, name := range []string{"aux", "bias", "capacity"} {
		m := mixtures[name]
		o := shortMixture(t)
		o.mixture, o.Steps = m, 10
		want := trained(t, o)
		require.Less(t, want.FinalLoss, want.FirstLoss)
		require.Len(t, want.Experts, 2)
		require.Equal(t, m.capacity > 0, want.Experts[0].Dropped > 0)
		require.Zero(t, want.Experts[0].Sent)
		for i := k; i < len(withExperts()); i += len(mixtures) {
			if !slices.Contains([]int{3, 9, 1, 10, 5, 8}, i) && !reliability.Long(t) {
				continue
			}
			o.Layout = withExperts()[i]
			got := trained(t, o)
			requireLosses(t, want.Losses, got.Losses, 1e-9, "%s %+v", name, o.Layout)
			require.InDelta(t, float64(want.ValLoss), float64(got.ValLoss), 1e-9, "%s %+v", name, o.Layout)
			require.Equal(t, want.Sample, got.Sample, "%s %+v", name, o.Layout)
			for i, l := range got.Experts {
				require.InDelta(t, want.Experts[i].CV, l.CV, 1e-12)
				require.InDelta(t, want.Experts[i].Entropy, l.Entropy, 1e-12)
				require.InDelta(t, want.Experts[i].Dropped, l.Dropped, 1e-12)
				require.Equal(t, o.EP > 1, l.Sent > 0)
			}
		}
	}
}

func TestLongLayoutsOfExperts(t *testing.T) { reliability.AsLong(t, TestLayoutsOfExperts) }

// A checkpoint of one layout can be continued on another one.
func TestResumeExpertsElsewhere(t *testing.T) {
	o, layouts := shortMixture(t), withExperts()[:5]
	if !reliability.Long(t) {
		layouts = layouts[1:4]
	}
	o.mixture, o.Steps = mixtures["bias"], 4*len(layouts)
	want := trained(t, o)
	o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
	for _, o.Layout = range layouts {
		o.Steps += 4
		requireLosses(t, want.Losses[:o.Steps], trained(t, o).Losses, 1e-9, "%+v", o.Layout)
	}
	o.mixture = mixtures["aux"]
	require.ErrorContains(t, o.run(new(bytes.Buffer)),
		"the checkpoint does not fit: unexpected: model:model.layers.0.mlp.gate.e_score_correction_bias")
}

func TestLongResumeExpertsElsewhere(t *testing.T) { reliability.AsLong(t, TestResumeExpertsElsewhere) }

// Training works on emulated GPUs and in 16-bit types; in the short form, with a mixture each.
func TestExpertsOnDevices(t *testing.T) {
	cuda := disttest.CUDA(t, emu.Config{Devices: 1, Lazy: true})
	long := reliability.Long(t)
	for name, m := range mixtures {
		if name == "aux" && !long {
			continue
		}
		o := shortMixture(t)
		o.mixture, o.Steps = m, 3
		want := trained(t, o)
		o.DType, o.Layout = "bfloat16", withExperts()[3]
		if name == "bias" || long {
			require.InDelta(t, float64(want.FinalLoss), float64(trained(t, o).FinalLoss), 0.1)
		}
		o.DType, o.Device = "float64", cuda
		for _, i := range []int{0, 3, 5} {
			if o.Layout = withExperts()[i]; name == "capacity" && i == 0 || name == "bias" && (i == 3 && emu.OnGPU() || i > 0 && long) {
				requireLosses(t, want.Losses, trained(t, o).Losses, 1e-9, "CUDA, %s %+v", name, o.Layout)
			}
		}
	}
}

func TestLongExpertsOnDevices(t *testing.T) { reliability.AsLong(t, TestExpertsOnDevices) }

func TestWrongMixtures(t *testing.T) {
	for want, change := range map[string]func(o *options){
		"-experts -1 -topk 2 -shared 0: a token has at least one of the experts": func(o *options) { o.mixture.experts = -1 },
		"-experts 4 -topk 5 -shared 0":                                           func(o *options) { o.topK = 5 },
		"-capacity -1 -aux 0.01 -bias 0":                                         func(o *options) { o.capacity = -1 },
		"-capacity 0 -aux NaN -bias 0":                                           func(o *options) { o.aux = math.NaN() },
		"-ep 3: 4 experts do not divide over the ranks":                          func(o *options) { o.EP = 3 },
		"-dp 0 -fsdp 1 -tp 1 -cp 1 -ep 0: ranks of an axis":                      func(o *options) { o.EP = 0 },
		"-bias with -forced":                                                     func(o *options) { o.forced, o.bias = true, 1 },
		"-load reads models without experts":                                     func(o *options) { o.Load = "model" },
		"hidden features do not divide over 6 ranks":                             func(o *options) { o.TP = 6 },
	} {
		o := shortMixture(t)
		change(&o)
		require.ErrorContains(t, o.run(new(bytes.Buffer)), want)
	}
}

// Names of values contain the layer and the expert.
func TestValuesOfExperts(t *testing.T) {
	o := shortMixture(t)
	o.Metrics, o.Plot = filepath.Join(t.TempDir(), "m.jsonl"), filepath.Join(t.TempDir(), "p.svg")
	trained(t, o)
	values, err := os.ReadFile(o.Metrics)
	require.NoError(t, err)
	picture, err := os.ReadFile(o.Plot)
	require.NoError(t, err)
	for _, name := range []string{"cv of layer 1", "entropy of layer 0", "load of layer 1"} {
		require.Contains(t, string(values), name)
		require.Contains(t, string(picture), name)
	}
	require.Contains(t, string(values), `"load of layer 1[3]"`)
	require.NotContains(t, string(picture), "[3]", "one panel")
}

// One plot shows the load of experts without balancing, with the loss, and with the bias, as ringo plot draws it.
func TestPictureOfBalances(t *testing.T) {
	var runs []curve.Run
	for name, set := range map[string]func(o *options){
		"no balancing": func(o *options) { o.aux = 0 }, "balance loss": func(o *options) { o.aux = 0.5 },
		"moving bias": func(o *options) { o.aux, o.bias = 0, 0.1 },
	} {
		o := shortMixture(t)
		o.Metrics = filepath.Join(t.TempDir(), "m.jsonl")
		set(&o)
		trained(t, o)
		values, err := metrics.Read(o.Metrics)
		require.NoError(t, err)
		r := curve.Run{Name: name}
		for _, s := range values {
			require.Len(t, s.Steps, len(s.Values))
			r.Series = append(r.Series, curve.Series(s))
		}
		runs = append(runs, r)
	}
	file := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, curve.Draw(file, runs...))
	picture, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, r := range runs {
		require.Equal(t, 1+2, strings.Count(string(picture), ">"+r.Name+"<"), "%s: in the legend, and over the heat maps of two layers", r.Name)
	}
	require.Equal(t, 1, strings.Count(string(picture), ">cv of layer 1<"), "one panel for all")
	require.Equal(t, 3, strings.Count(string(picture), ">load of layer 1<"))
}

// The flags make a training with experts.
func TestFlags(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o := define(fs)
	require.NoError(t, fs.Parse([]string{"-steps", "1", "-layers", "1", "-dim", "16", "-seq", "8", "-sample", "0", "-json",
		"-data", shortMixture(t).Data}))
	s := trained(t, o())
	require.Equal(t, "moe", s.Example)
	require.Len(t, s.Experts, 1)
}

// With experts the loss gets lower than with one MLP of their active size, with both ways to balance them (the short form of the
// measurement in docs/BENCHMARKS.md).
func TestLongExpertsLearn(t *testing.T) {
	reliability.SkipUnlessLong(t)
	run := func(program string, flags ...string) (val, cv float64) {
		args := append([]string{"run", program, "-steps", "300", "-layers", "2", "-dim", "64", "-heads", "2", "-seq", "64", "-sample", "0",
			"-json"}, flags...)
		out, err := exec.Command("go", args...).Output()
		require.NoError(t, err)
		var s summary
		require.NoError(t, json.Unmarshal(out, &s), "%s", out)
		for _, l := range s.Experts {
			cv += l.CV / float64(len(s.Experts))
		}
		fmt.Printf("%s %v: validation loss %.4f, load varies by %.3f\n", s.Example, flags, float64(s.ValLoss), cv)
		return float64(s.ValLoss), cv
	}
	dense, _ := run("../gpt")
	loss, balanced := run(".")
	_, free := run(".", "-aux", "0")
	_, biased := run(".", "-aux", "0", "-bias", "0.01")
	require.Less(t, loss, dense-0.03)
	require.Greater(t, free, 1.5*balanced)
	require.Greater(t, free, 1.5*biased)
}

// Experts that are taken in turn have the same load, and the output says so.
func TestForcedExperts(t *testing.T) {
	o := shortMixture(t)
	o.forced, o.EP, o.Batch = true, 2, 4
	for _, l := range trained(t, o).Experts {
		require.Zero(t, l.CV)
		require.True(t, l.Forced)
	}
	var out bytes.Buffer
	o.Quiet = false
	require.NoError(t, o.run(&out))
	require.Contains(t, out.String(), "experts were taken in turn (-forced): this is a benchmark")
}
