package lm

import (
	"context"
	"flag"
	"io"
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// Options are the flags.
type Options struct {
	train.Options
	layout
	pipeline
	mixture
	layers, dim, heads, kvHeads int
	seq, batch, steps, sample   int
	lr                          float64
	optim, dtype, data, load    string
	lora                        int
	seed                        uint64
	given                       map[string]bool // flags of the command line
}

// Main reads the command line and trains. If the model has experts, there are flags for them. It writes text for people, or the JSON line,
// to w.
func Main(w io.Writer, experts bool) error {
	parse := define(flag.CommandLine, experts)
	flag.Parse()
	return parse().run(w)
}

// define defines the flags. Call the returned function after they are parsed.
func define(fs *flag.FlagSet, experts bool) func() Options {
	o := Options{layout: layout{ep: 1}}
	o.flags(fs)
	if experts {
		o.mixtureFlags(fs)
	} else {
		o.pipelineFlags(fs)
	}
	common := train.Flags(fs)
	fs.BoolVar(&common.Quiet, "json", false, "print the summary as one JSON line, and nothing else")
	return func() Options {
		o.Options, o.given = *common, map[string]bool{}
		fs.Visit(func(f *flag.Flag) { o.given[f.Name] = true })
		return o
	}
}

func (o *Options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.layers, "layers", 4, "layers")
	fs.IntVar(&o.dim, "dim", 128, "features of a token")
	fs.IntVar(&o.heads, "heads", 4, "heads of queries")
	fs.IntVar(&o.kvHeads, "kv-heads", 0, "heads of keys and values, which divide -heads (0: as many)")
	fs.IntVar(&o.seq, "seq", 128, "tokens of a sequence: bytes, unless the loaded folder has a tokenizer.json")
	fs.IntVar(&o.batch, "batch", 16, "sequences of the global batch, over all ranks")
	fs.IntVar(&o.steps, "steps", 1000, "training steps")
	fs.IntVar(&o.sample, "sample", 200, "tokens of text to write at the end")
	fs.Float64Var(&o.lr, "lr", 0, "learning rate (0: 2e-3 for adamw, 0.1 for sgd)")
	fs.StringVar(&o.optim, "optim", "adamw", "optimizer: adamw or sgd (momentum 0.9)")
	fs.StringVar(&o.dtype, "dtype", "float32", "float32, float64 or bfloat16 (the optimizer keeps the parameters in float32 as well)")
	fs.Uint64Var(&o.seed, "seed", 9, "seed of parameters, order and sample")
	fs.StringVar(&o.data, "data", "", "`file` of text (default: Newton's Opticks)")
	fs.StringVar(&o.load, "load", "",
		"`folder` of a model in Hugging Face's form (config.json, safetensors) to go on from, in place of -layers to -kv-heads")
	fs.IntVar(&o.lora, "lora", 0, "`rank` of adapters (LoRA) to train, and to save, in place of the loaded model")
	o.layout.flags(fs)
}

// run trains, and writes text for people, or the JSON line, to w.
func (o Options) run(w io.Writer) error {
	dtype, err := o.check()
	if err != nil {
		return err
	}
	text, err := o.corpus()
	if err != nil {
		return err
	}
	return o.Run(dist.Config{Ranks: o.ranks(), Log: w}, func(ctx context.Context, r *dist.Rank) error {
		t, err := newTrainer(ctx, o, dtype, r, text)
		if err != nil {
			return err
		}
		if err := t.fit(ctx); err != nil {
			return err
		}
		if t.loop.Going() {
			if err := t.report(); err != nil {
				return err
			}
		}
		return t.close()
	})
}

// check returns an error for impossible options, and sets the default learning rate.
func (o *Options) check() (tensor.DType, error) {
	dtype, err := tensor.ParseDType(o.dtype)
	switch {
	case err != nil || dtype == tensor.Float16 || !dtype.IsFloat():
		return 0, train.Usagef("-dtype %s: float32, float64 or bfloat16", o.dtype)
	case o.optim != "sgd" && o.optim != "adamw":
		return 0, train.Usagef("-optim %s: adamw or sgd", o.optim)
	case o.batch < 1 || o.steps < 1 || o.sample < 0:
		return 0, train.Usagef("-batch and -steps must be at least 1, -sample not negative")
	case !(o.lr >= 0) || math.IsInf(o.lr, 1):
		return 0, train.Usagef("-lr %v: want a number that is not negative", o.lr)
	case flag.NArg() > 0:
		return 0, train.Usagef("unexpected argument %q", flag.Arg(0))
	}
	if err := o.checkMixture(); err != nil {
		return 0, err
	}
	if err := o.checkModel(); err != nil {
		return 0, err
	}
	if o.lr == 0 {
		o.lr = map[string]float64{"sgd": 0.1, "adamw": 2e-3}[o.optim]
	}
	if err := o.layout.check(); err != nil {
		return 0, err
	}
	if err := o.checkPipeline(); err != nil {
		return 0, err
	}
	return dtype, o.Check()
}
