package lm

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// Options are the flags that both programs have.
type Options struct {
	train.Options
	Layout
	Layers, Dim, Heads, KVHeads int
	Seq, Batch, Steps, Sample   int
	LR                          float64
	Optim, DType, Data, Load    string
	LoRA                        int
	LoRASave                    []string
	Seed                        uint64
	Given                       map[string]bool // flags of the command line
}

// Flags defines them. Call the returned function after they are parsed.
func (o *Options) Flags(fs *flag.FlagSet) (parsed func()) {
	fs.IntVar(&o.Layers, "layers", 4, "layers")
	fs.IntVar(&o.Dim, "dim", 128, "features of a token")
	fs.IntVar(&o.Heads, "heads", 4, "heads of queries")
	fs.IntVar(&o.KVHeads, "kv-heads", 0, "heads of keys and values, which divide -heads (0: as many)")
	fs.IntVar(&o.Seq, "seq", 128, "tokens of a sequence: bytes, unless the loaded folder has a tokenizer.json")
	fs.IntVar(&o.Batch, "batch", 16, "sequences of the global batch, over all ranks")
	fs.IntVar(&o.Steps, "steps", 1000, "training steps")
	fs.IntVar(&o.Sample, "sample", 200, "tokens of text to write at the end")
	fs.Float64Var(&o.LR, "lr", 0, "learning rate (0: 2e-3 for adamw, 0.1 for sgd)")
	fs.StringVar(&o.Optim, "optim", "adamw", "optimizer: adamw or sgd (momentum 0.9)")
	fs.StringVar(&o.DType, "dtype", "float32", "float32, float64 or bfloat16 (the optimizer keeps the parameters in float32 as well)")
	fs.Uint64Var(&o.Seed, "seed", 9, "seed of parameters, order and sample")
	fs.StringVar(&o.Data, "data", "", "`file` of text (default: Newton's Opticks)")
	fs.StringVar(&o.Load, "load", "",
		"`folder` of a model in Hugging Face's form (config.json, safetensors) to go on from, in place of -layers to -kv-heads")
	fs.IntVar(&o.LoRA, "lora", 0, "`rank` of adapters (LoRA) to train, and to save, in place of the loaded model")
	fs.Func("lora-save", "with -lora: `modules` to train and save as a whole, by the ends of their names in files: embed_tokens,lm_head",
		func(s string) error {
			o.LoRASave = strings.Split(s, ",")
			return nil
		})
	o.Layout.flags(fs)
	common := train.Flags(fs)
	fs.BoolVar(&common.Quiet, "json", false, "print the summary as one JSON line, and nothing else")
	return func() {
		o.Options, o.Given = *common, map[string]bool{}
		fs.Visit(func(f *flag.Flag) { o.Given[f.Name] = true })
	}
}

// Check returns an error for impossible options, and sets the default learning rate.
func (o *Options) Check() (tensor.DType, error) {
	dtype, err := tensor.ParseDType(o.DType)
	rates := map[string]float64{"sgd": 0.1, "adamw": 2e-3}
	switch {
	case err != nil || dtype == tensor.Float16 || !dtype.IsFloat():
		return 0, train.Usagef("-dtype %s: float32, float64 or bfloat16", o.DType)
	case rates[o.Optim] == 0:
		return 0, train.Usagef("-optim %s: adamw or sgd", o.Optim)
	case o.Batch < 1 || o.Steps < 1 || o.Sample < 0:
		return 0, train.Usagef("-batch and -steps must be at least 1, -sample not negative")
	case !(o.LR >= 0) || math.IsInf(o.LR, 1):
		return 0, train.Usagef("-lr %v: want a number that is not negative", o.LR)
	case flag.NArg() > 0:
		return 0, train.Usagef("unexpected argument %q", flag.Arg(0))
	case o.LoRA < 0:
		return 0, train.Usagef("-lora %d: a rank is at least 1", o.LoRA)
	case o.LoRA == 0 && o.LoRASave != nil:
		return 0, train.Usagef("-lora-save needs -lora")
	case o.LoRA > 0 && o.Load == "":
		return 0, train.Usagef("-lora needs -load: adapters stand on a trained model")
	}
	o.LR = cmp.Or(o.LR, rates[o.Optim])
	if err := o.Layout.check(); err != nil {
		return 0, err
	}
	return dtype, o.Options.Check()
}

// Llama returns a model of the size that the flags say, without values.
func (o *Options) Llama() (*gpt.Model, error) {
	m, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 256, Positions: o.Seq, Width: o.Dim, Layers: o.Layers, Heads: o.Heads,
		KVHeads: o.KVHeads})
	if err != nil {
		return nil, train.Usagef("-layers, -dim, -heads, -kv-heads, -seq: %v", err)
	}
	return m, nil
}

// Optimizer returns the optimizer of -optim. norm sums over the ranks that have other gradients; nil: there are none.
func (o *Options) Optimizer(params nn.Params, norm optim.Norm) *optim.Optimizer {
	warm := schedule.Warmup(50, nil)
	if o.Optim == "sgd" {
		return optim.NewSGD(params, optim.SGDConfig{LR: o.LR, Momentum: 0.9, Schedule: warm, Clip: 1, Norm: norm})
	}
	return optim.NewAdamW(params, optim.AdamWConfig{LR: o.LR, WeightDecay: 0.01, Schedule: warm, Clip: 1, Norm: norm})
}

// Start is train.Start, and refuses a checkpoint of another model, whose parameters may have the same sizes, and would load.
func (o *Options) Start(ctx context.Context, r *dist.Rank, c gpt.Config, st ckpt.State) (*train.Loop, error) {
	want := fmt.Sprintf("-layers %d -dim %d -heads %d -kv-heads %d -seq %d", c.Layers, c.Width, c.Heads, c.KVHeads, o.Seq)
	if o.LoRA > 0 {
		want += fmt.Sprintf(" -lora %d", o.LoRA)
	}
	if len(o.LoRASave) > 0 {
		want += fmt.Sprintf(" -lora-save %q", strings.Join(o.LoRASave, ","))
	}
	have := want
	st.Extra = map[string]any{"model": &have}
	loop, err := train.Start(ctx, r, &o.Options, st)
	switch {
	case err == nil && have != want:
		err = train.Usagef("-resume: the checkpoint is of a model with %s, not %s", have, want)
	case err != nil && len(o.LoRASave) > 0 && strings.Contains(err.Error(), "adapters were trained above"):
		err = fmt.Errorf("%w; checkpoints of -lora-save that earlier versions wrote have the base without those modules, and cannot be "+
			"continued: train anew, with another -save", err)
	case err != nil && o.Resume && o.LoRA > 0 && (strings.Contains(err.Error(), "missing: ") || strings.Contains(err.Error(), "unexpected: ")):
		err = fmt.Errorf("-lora %d -lora-save %q: %w", o.LoRA, strings.Join(o.LoRASave, ","), err)
	}
	return loop, err
}
