package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// folder is a model in Hugging Face's format.
func folder(t *testing.T, c gpt.Config, tokenizer ...string) string {
	t.Helper()
	return folderOf(t, c, 3, tokenizer...)
}

func folderOf(t *testing.T, c gpt.Config, seed uint64, tokenizer ...string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1}, func(ctx context.Context, r *dist.Rank) error {
		m, err := gpt.New(c)
		require.NoError(t, err)
		files, err := m.Files()
		require.NoError(t, err)
		for _, name := range tokenizer {
			if files["tokenizer.json"], err = os.ReadFile(
				filepath.Join("..", "..", "data", "tokenizer", "testdata", name, "tokenizer.json")); err != nil {
				return err
			}
		}
		s := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		require.NoError(t, s.Save(ctx, ckpt.State{Params: nn.Init(m, r.Device, tensor.Float32, seed), Files: files}))
		return s.Close()
	}))
	path, err := ckpt.Latest(dir)
	require.NoError(t, err)
	return path
}

var gpt2 = gpt.Config{Kind: gpt.GPT2, Vocab: 256, Positions: 11, Width: 12, Layers: 2, Heads: 3, Tied: true}

// The program can load its own checkpoint: the training continues where it stopped.
func TestLoadWhatWasSaved(t *testing.T) {
	o := short(t)
	o.Save = filepath.Join(t.TempDir(), "ckpt")
	saved := trained(t, o)
	path, err := ckpt.Latest(o.Save)
	require.NoError(t, err)
	o.Save, o.Load, o.Steps, o.Layers, o.Dim = "", path, 1, 7, 1 // the flags for sizes are ignored
	again := trained(t, o)
	require.Equal(t, saved.Params, again.Params)
	require.InDelta(t, float64(saved.FinalLoss), float64(again.FirstLoss), 0.05)
	require.Less(t, float64(again.FirstLoss), float64(saved.FirstLoss)-0.05)
}

// Finetuning a loaded model gives the same results on every layout, for the whole model and for adapters: in the short form, for adapters
// of GPT-2 and a whole Llama.
func TestFinetune(t *testing.T) {
	llama := gpt2
	llama.Kind, llama.KVHeads, llama.Tied, llama.Heads = gpt.Llama, 1, false, 2
	for _, config := range []gpt.Config{gpt2, llama} {
		o := short(t)
		o.Load, o.Steps, o.LR = folder(t, config), 10, 0.1
		for o.LoRA = range 3 {
			if o.LoRA == 1 || (o.LoRA == 2) != config.Tied && !reliability.Long(t) {
				continue
			}
			o.Layout = on(1, 1, 3)
			want := trained(t, o)
			require.Less(t, want.FinalLoss, want.FirstLoss)
			all := []lm.Layout{on(2, 1, 3), on(1, 2, 3), on(1, 3, 1), on(2, 2, 2)}
			if config.Heads%2 == 0 {
				all = append(all, lay(1, 1, 3, 2, false, 0, 1, 1, 0, 0), lay(1, 2, 3, 2, true, 0, 1, 1, 0, 0))
			} else {
				all = append(all, lay(1, 1, 3, 3, true, 0, 1, 1, 0, 0), lay(2, 1, 3, 3, false, 0, 1, 1, 0, 0))
			}
			for i := o.LoRA / 2; i < len(all); i += 2 {
				if i%4 > 1 && !reliability.Long(t) {
					continue
				}
				o.Layout = all[i]
				got := trained(t, o)
				requireLosses(t, want.Losses, got.Losses, 1e-9, "%v -lora %d, %+v", config.Kind, o.LoRA, o.Layout)
				require.Equal(t, want.Sample, got.Sample)
			}
			o.DType, o.Layout = "bfloat16", on(1, 2, 3)
			requireLosses(t, want.Losses, trained(t, o).Losses, 0.05, "%v -lora %d, bfloat16", config.Kind, o.LoRA)
			o.DType = "float64"
		}
	}
}

func TestLongFinetune(t *testing.T) { reliability.AsLong(t, TestFinetune) }

// A loaded model uses its own tokenizer. A checkpoint of it has the tokenizer, and can be continued.
func TestTokens(t *testing.T) {
	for i, name := range []string{"llama3", "gpt2", "llama2"} {
		if i > 0 && !reliability.Long(t) {
			break
		}
		c := gpt2
		c.Vocab = 700
		o := short(t)
		o.Load, o.Steps, o.Save = folder(t, c, name), 3, filepath.Join(t.TempDir(), "ckpt")
		want := trained(t, o)
		require.InDelta(t, math.Log(700), float64(want.FirstLoss), 0.5)
		require.NotEmpty(t, want.Sample)
		path, err := ckpt.Latest(o.Save)
		require.NoError(t, err)
		o.Load, o.Save = path, ""
		require.InDelta(t, float64(want.FinalLoss), float64(trained(t, o).FirstLoss), 0.1)
	}
}

func TestLongTokens(t *testing.T) { reliability.AsLong(t, TestTokens) }

// A checkpoint of adapters has nothing else. It can be continued on another layout with the same base, and is in PEFT's format.
func TestAdaptersApart(t *testing.T) {
	o := short(t)
	o.Load, o.LoRA, o.Steps = folder(t, gpt2), 2, 8
	want := trained(t, o)
	o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
	for _, l := range []lm.Layout{on(1, 2, 3), lay(1, 1, 3, 3, true, 0, 1, 1, 0, 0), on(2, 1, 3), on(1, 3, 2)} {
		o.Layout = l
		o.Steps += 2
		requireLosses(t, want.Losses[:o.Steps], trained(t, o).Losses, 1e-9, "%+v", l)
	}
	path, err := ckpt.Latest(o.Save)
	require.NoError(t, err)
	for _, path := range []string{path, filepath.Join(o.Save, "adapters", peft.File)} {
		_, list, err := inspect.List(path)
		require.NoError(t, err)
		for _, x := range list {
			require.Contains(t, x.Name, ".lora_")
		}
	}
	m, err := gpt.Open(o.Load)
	require.NoError(t, err)
	adapters, err := peft.Apply(m, filepath.Join(o.Save, "adapters"))
	require.NoError(t, err)
	require.Len(t, adapters, 2*(4+3*2))
	o.LoRA = 3
	require.ErrorContains(t, o.run(new(bytes.Buffer)), "shape")
	list := filepath.Join(path, "ringo.json")
	text, err := os.ReadFile(list)
	require.NoError(t, err)
	require.True(t, bytes.Contains(text, []byte(`-seq 9 -lora 2"`)), "as earlier checkpoints have it")
	require.NoError(t, os.WriteFile(list, text[:len(text)/2], 0o666))
	o.LoRA = 2
	err = o.run(new(bytes.Buffer))
	require.ErrorContains(t, err, " is not sound: ringo.json: ")
	require.NotContains(t, err.Error(), "-lora", "the flags are right")
}

// Modules beside adapters are trained, saved with them, and continued, on any layout.
func TestSavedBesideAdapters(t *testing.T) {
	o := short(t)
	o.Load, o.LoRA, o.LR, o.Steps = folder(t, gpt2), 2, 0.1, 6
	without := trained(t, o)
	o.LoRASave = []string{"wpe", "ln_f"}
	want := trained(t, o)
	require.Greater(t, math.Abs(float64(want.FinalLoss-without.FinalLoss)), 1e-3)
	o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
	for _, l := range []lm.Layout{on(1, 2, 3), lay(1, 1, 3, 3, true, 0, 1, 1, 0, 0), on(2, 1, 3)} {
		o.Layout = l
		o.Steps += 2
		requireLosses(t, want.Losses[:o.Steps], trained(t, o).Losses, 1e-9, "%+v", l)
	}
	m, err := gpt.Open(o.Load)
	require.NoError(t, err)
	adapters, err := peft.Apply(m, filepath.Join(o.Save, "adapters"))
	require.NoError(t, err)
	require.Len(t, adapters, 2*(4+3*2)+3)
	require.NotNil(t, adapters.ByName("pos.weight"))
	require.NoError(t, os.Rename(o.Load, o.Load+".aside"))
	require.NoError(t, os.CopyFS(o.Load, os.DirFS(folderOf(t, gpt2, 4))))
	err = o.run(new(bytes.Buffer))
	require.ErrorContains(t, err, "its adapters were trained above tensors of the base "+o.Load+" (SHA-256 ")
	require.ErrorContains(t, err, "; checkpoints of -lora-save that earlier versions wrote have the base without those modules")
	require.NoError(t, os.RemoveAll(o.Load))
	require.NoError(t, os.Rename(o.Load+".aside", o.Load))
	o.LoRASave = []string{"wpe"}
	err = o.run(new(bytes.Buffer))
	require.ErrorContains(t, err, `-lora 2 -lora-save "wpe": ckpt: loading `)
	require.ErrorContains(t, err, "unexpected: model:ln_f.bias")
	o.LoRASave = []string{"tail"}
	require.ErrorContains(t, o.run(new(bytes.Buffer)), `-lora-save: nn.LoRA: "tail" ends the name of no module`)
}

// A training in 16 bits, of the whole model or of adapters, can be continued on layouts where the masters are beside a copy of the model,
// and where they are its shards. GPT-2's files have several parameters in one matrix, and transposed matrices. The short form has the whole
// model on half of the layouts; TestAdaptersOfAnotherBase has adapters.
func TestHalfResumesElsewhere(t *testing.T) {
	o := short(t)
	o.DType, o.LR, o.Load = "bfloat16", 0.01, folder(t, gpt2)
	layouts := []lm.Layout{on(2, 1, 3), on(1, 2, 3), lay(1, 1, 3, 3, true, 0, 1, 1, 0, 0), on(1, 1, 3), on(1, 3, 1), on(2, 2, 2)}
	loras := []int{0, 2}
	if !reliability.Long(t) {
		layouts, loras = layouts[:3], loras[:1]
	}
	for _, o.LoRA = range loras {
		o.Layout, o.Save, o.Resume, o.Steps = on(1, 1, 3), "", false, 12
		want := trained(t, o)
		o.Save, o.Resume, o.Steps = filepath.Join(t.TempDir(), "ckpt"), true, 0
		for i, l := range layouts {
			o.Layout, o.Steps = l, 12*(i+1)/len(layouts)
			got := trained(t, o)
			require.Equal(t, 12*i/len(layouts), got.ResumedAt)
			requireLosses(t, want.Losses[:o.Steps], got.Losses, 2e-3, "-lora %d, %+v", o.LoRA, l)
		}
	}
}

func TestLongHalfResumesElsewhere(t *testing.T) { reliability.AsLong(t, TestHalfResumesElsewhere) }

// Adapters cannot be continued on another base, on any layout. They can if the same base is in another folder, or in another type.
func TestAdaptersOfAnotherBase(t *testing.T) {
	o := short(t)
	first, second := folder(t, gpt2), t.TempDir()
	require.NoError(t, os.CopyFS(second, os.DirFS(first)))
	o.Load, o.LoRA, o.Steps, o.DType, o.Layout, o.Save, o.Resume = first, 2, 2, "bfloat16", on(1, 2, 3), filepath.Join(t.TempDir(), "ckpt"),
		true
	trained(t, o)
	o.Load, o.Steps, o.Layout = second, 4, on(2, 1, 3)
	require.Equal(t, 2, trained(t, o).ResumedAt)
	o.Load, o.Steps = folderOf(t, gpt2, 4), 6
	for _, o.Layout = range []lm.Layout{on(1, 1, 3), on(1, 3, 3), lay(1, 2, 3, 3, true, 0, 1, 1, 0, 0)} {
		err := o.run(new(bytes.Buffer))
		require.ErrorContains(t, err, "its adapters were trained above the base "+second+" (SHA-256 ")
		require.ErrorContains(t, err, "…), which is not the base "+o.Load+" (SHA-256 ")
	}
}

func TestWrongLoad(t *testing.T) {
	base, other := folder(t, gpt2), gpt2
	other.Vocab = 300
	for want, change := range map[string]func(o *options){
		"-lora -1: a rank is at least 1": func(o *options) { o.LoRA = -1 },
		"-lora needs -load":              func(o *options) { o.LoRA = 2 },
		"-lora-save needs -lora":         func(o *options) { o.LoRASave = []string{"lm_head"} },
		"-load: gpt: ":                   func(o *options) { o.Load = t.TempDir() },
		"-heads: the model is that of -load": func(o *options) {
			o.Load, o.Given = base, map[string]bool{"heads": true}
		},
		"-seq 12: the model of " + base + " has 11 positions":                           func(o *options) { o.Load, o.Seq = base, 12 },
		"has no tokenizer.json, so that tokens are bytes, and the model has 300 tokens": func(o *options) { o.Load = folder(t, other) },
		"has 424 tokens, the model 300":                                                 func(o *options) { o.Load = folder(t, other, "gpt2") },
		"tokenizer.json: ": func(o *options) {
			o.Load = folder(t, other)
			require.NoError(t, os.WriteFile(filepath.Join(o.Load, "tokenizer.json"), []byte("{}"), 0o666))
		},
	} {
		o := short(t)
		change(&o)
		require.ErrorContains(t, o.run(new(bytes.Buffer)), want)
	}
}
