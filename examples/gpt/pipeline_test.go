package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
)

// staged is a training that stages can share.
func staged(t *testing.T) options {
	o := short(t)
	o.Layers, o.Batch, o.Steps = 4, 6, 8
	o.micro, o.chunks = 3, 2
	return o
}

// Stages have the losses of one rank, with any schedule and on any other axis, and go on from each other's checkpoints. The short form has
// half of them.
func TestPipelines(t *testing.T) {
	o := staged(t)
	o.Steps = 16
	want := trained(t, o)
	o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
	cases := []struct {
		lm.Layout
		schedule string
	}{
		{lay(1, 1, 3, 1, false, 0, 1, 1, 4, 0), "1f1b"}, {lay(1, 2, 3, 1, false, 0, 1, 1, 2, 0), "interleaved"}, {Layout: on(1, 2, 2)},
		{lay(1, 1, 3, 2, true, 0, 1, 1, 2, 0), "zb-h1"}, {lay(1, 2, 2, 1, false, 0, 2, 1, 2, 0), "gpipe"}, {Layout: on(1, 1, 3)},
		{lay(2, 1, 3, 1, false, 0, 1, 1, 2, 0), "zbv"}, {lay(2, 2, 1, 1, false, 0, 1, 1, 2, 0), "v-half"},
	}
	if !reliability.Long(t) {
		cases = cases[:4]
	}
	for _, c := range cases {
		o.Layout, o.schedule = c.Layout, c.schedule
		o.Steps += 16 / len(cases)
		got := trained(t, o)
		requireLosses(t, want.Losses[:o.Steps], got.Losses, 1e-9, "%+v", c)
		require.Equal(t, want.Params, got.Params)
		require.Equal(t, c.Ranks(), got.Ranks)
		if o.Steps == 16 {
			require.InDelta(t, float64(want.ValLoss), float64(got.ValLoss), 1e-9)
		}
	}
}

func TestLongPipelines(t *testing.T) { reliability.AsLong(t, TestPipelines) }

// Stages finetune adapters as one rank does. The checkpoint has those of all stages and nothing else, goes on elsewhere with the same base,
// and is in PEFT's format. The short form has a model with a tied table, and half of the layouts.
func TestPipelinesOfAdapters(t *testing.T) {
	config := gpt2
	config.Layers = 4
	long := reliability.Long(t)
	for _, config.Tied = range []bool{true, false} {
		if !config.Tied && !long {
			break
		}
		o := staged(t)
		o.Load, o.LoRA, o.LR, o.Steps = folder(t, config), 2, 0.1, 12
		want := trained(t, o)
		require.Less(t, want.FinalLoss, want.FirstLoss)
		for _, o.schedule = range []string{"1f1b", "zbv"} {
			if o.schedule == "1f1b" && !long {
				continue
			}
			o.Layout = lay(1, 2, 3, 1, false, 0, 1, 1, 2, 0)
			got := trained(t, o)
			requireLosses(t, want.Losses, got.Losses, 1e-9, "tied %v, %s", config.Tied, o.schedule)
			require.Equal(t, want.Params, got.Params)
		}
		o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
		cases := []struct {
			lm.Layout
			schedule string
		}{
			{lay(2, 1, 3, 1, false, 0, 1, 1, 2, 0), "gpipe"}, {Layout: on(1, 2, 3)}, {lay(1, 1, 3, 3, true, 0, 1, 1, 2, 0), "1f1b"},
			{Layout: on(1, 1, 3)}, {lay(1, 2, 2, 1, false, 0, 1, 1, 2, 0), "interleaved"}, {lay(1, 1, 3, 1, false, 0, 1, 1, 4, 0), "zb-h1"},
		}
		if !long {
			cases = cases[:3]
		}
		for _, c := range cases {
			o.Layout, o.schedule = c.Layout, c.schedule
			o.Steps += 12 / len(cases)
			requireLosses(t, want.Losses[:o.Steps], trained(t, o).Losses, 1e-9, "tied %v, %+v", config.Tied, c)
		}
		m, err := gpt.Open(o.Load)
		require.NoError(t, err)
		adapters, err := peft.Apply(m, filepath.Join(o.Save, "adapters"))
		require.NoError(t, err)
		require.Len(t, adapters, 4*(4+3*2))
	}
}

func TestLongPipelinesOfAdapters(t *testing.T) { reliability.AsLong(t, TestPipelinesOfAdapters) }

func TestPipelinesRefused(t *testing.T) {
	given := func(name string) map[string]bool { return map[string]bool{name: true} }
	for want, change := range map[string]func(o *options){
		"-micro 4: microbatches of -batch 6 sequences must": func(o *options) { o.micro = 4 },
		"-micro 0: microbatches of -batch 6 sequences must": func(o *options) { o.micro = 0 },
		"-micro needs -pp":                                            func(o *options) { o.PP, o.Given = 1, given("micro") },
		"-pp -1: ranks of an axis are at least 1":                     func(o *options) { o.PP = -1 },
		"-pp 0: ranks of an axis are at least 1":                      func(o *options) { o.PP = 0 },
		"-sample 15: stages write no text":                            func(o *options) { o.Given = given("sample") },
		"-schedule forward trains nothing":                            func(o *options) { o.schedule = "forward" },
		`-schedule: pp: no schedule "2f2b" of 2 ranks, 2 chunks, 3 m`: func(o *options) { o.schedule = "2f2b" },
		`-schedule: pp: no schedule "1f1b" of 2 ranks, 0 chunks, 3 m`: func(o *options) { o.chunks = 0 },
		"-schedule: pp: DualPipeV needs at least 4 microbatches on 2": func(o *options) { o.schedule = "dualpipev" },
		"-pp 8 -schedule 1f1b: gpt: stage 4 has 0 layers":             func(o *options) { o.PP = 8 },
	} {
		o := staged(t)
		o.PP, o.schedule = 2, "1f1b"
		change(&o)
		require.ErrorContains(t, o.run(new(bytes.Buffer)), want)
	}
}
