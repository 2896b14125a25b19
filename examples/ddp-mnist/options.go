package main

import (
	"flag"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

type options struct {
	train.Options
	ranks, epochs, steps, batch int
	lr, bucketMB                float64
	model, optim, dtype, data   string
	seed                        uint64
}

// parse reads the command line.
func parse() (o options) {
	flag.StringVar(&o.model, "model", "mlp", "mlp (three linear layers) or cnn (two convolutions and two linear layers: over 99%)")
	flag.IntVar(&o.ranks, "ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.epochs, "epochs", 5, "passes over the training set")
	flag.IntVar(&o.steps, "steps", 0, "training steps, instead of -epochs")
	flag.IntVar(&o.batch, "batch", 128, "rows of the global batch, over all ranks")
	flag.Float64Var(&o.lr, "lr", 0, "learning rate (0: 0.1 for sgd, 1e-3 for adamw)")
	flag.StringVar(&o.optim, "optim", "sgd", "optimizer: sgd (momentum 0.9) or adamw")
	flag.StringVar(&o.dtype, "dtype", "float32",
		"float32, float64, bfloat16 or float16 (16 bits: the optimizer keeps the parameters in float32 as well)")
	flag.Uint64Var(&o.seed, "seed", 9, "seed of parameters and order")
	flag.StringVar(&o.data, "data", "", "`directory` of IDX files, or synthetic (default: MNIST)")
	flag.Float64Var(&o.bucketMB, "bucket-mb", 25, "largest gradient bucket in MiB")
	common := train.Flags(flag.CommandLine)
	flag.BoolVar(&common.Quiet, "json", false, "print the summary as one JSON line, and nothing else")
	flag.Parse()
	o.Options = *common
	return o
}

// check returns an error for impossible options, and sets the default learning rate.
func (o *options) check() (tensor.DType, error) {
	dtype, err := tensor.ParseDType(o.dtype)
	rates := map[string]float64{"sgd": 0.1, "adamw": 1e-3}
	switch {
	case err != nil:
		return 0, train.Usagef("-dtype: %v", err)
	case !dtype.IsFloat():
		return 0, train.Usagef("-dtype %s: not a float type", o.dtype)
	case o.model != "mlp" && o.model != "cnn":
		return 0, train.Usagef("-model %s: mlp or cnn", o.model)
	case rates[o.optim] == 0:
		return 0, train.Usagef("-optim %s: sgd or adamw", o.optim)
	case o.ranks < 1 || o.batch < 1 || o.epochs < 1 || o.steps < 0:
		return 0, train.Usagef("-ranks, -batch and -epochs must be at least 1, -steps not negative")
	case !(o.lr >= 0) || !(o.bucketMB*(1<<20) >= 1):
		return 0, train.Usagef("-lr must not be negative, -bucket-mb must be a byte at least")
	case flag.NArg() > 0:
		return 0, train.Usagef("unexpected argument %q", flag.Arg(0))
	}
	if o.lr == 0 {
		o.lr = rates[o.optim]
	}
	return dtype, o.Check()
}

func (o *options) load(dtype tensor.DType) (learn, tests *data.Images, err error) {
	if o.data != "synthetic" {
		return data.MNIST(o.data, dtype)
	}
	if learn, err = data.Synthetic(10000, o.seed, dtype); err == nil {
		tests, err = data.Synthetic(2000, o.seed+1, dtype)
	}
	return learn, tests, err
}
