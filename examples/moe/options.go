package main

import (
	"flag"
	"math"

	"github.com/ringo-ml/ringo/examples/internal/lm"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

type options struct {
	lm.Options
	mixture
}

// mixture describes the experts that replace MLPs.
type mixture struct {
	experts, topK, shared int
	capacity, aux, bias   float64
	forced                bool
}

// define defines the flags. Call the returned function after they are parsed.
func define(fs *flag.FlagSet) func() options {
	var o options
	parsed := o.Flags(fs)
	fs.IntVar(&o.experts, "experts", 8,
		"experts of each layer; together, those of a token and the shared ones have the size of an MLP of examples/gpt")
	fs.IntVar(&o.topK, "topk", 2, "experts of a token")
	fs.IntVar(&o.shared, "shared", 0, "shared experts, which see all tokens")
	fs.Float64Var(&o.capacity, "capacity", 0, "slots of an expert, as a multiple of the mean: more are dropped (0: none are)")
	fs.Float64Var(&o.aux, "aux", 0.01, "weight of the balance loss (0: none)")
	fs.Float64Var(&o.bias, "bias", 0, "step by which biases that choose experts move towards balance (0: none)")
	fs.BoolVar(&o.forced, "forced", false, "tokens take experts in turn, whatever the router says: for benchmarks alone")
	fs.IntVar(&o.EP, "ep", 1, "ranks that share the experts")
	return func() options {
		parsed()
		return o
	}
}

// check returns an error for impossible options, and sets the default learning rate.
func (o *options) check() (tensor.DType, error) {
	dtype, err := o.Check()
	positive := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	switch {
	case err != nil:
		return 0, err
	case o.experts < 1 || o.topK < 1 || o.topK > o.experts || o.shared < 0:
		return 0, train.Usagef("-experts %d -topk %d -shared %d: a token has at least one of the experts", o.experts, o.topK, o.shared)
	case !positive(o.capacity) || !positive(o.aux) || !positive(o.bias):
		return 0, train.Usagef("-capacity %v -aux %v -bias %v: want numbers that are not negative", o.capacity, o.aux, o.bias)
	case o.forced && o.bias > 0:
		return 0, train.Usagef("-bias with -forced: a bias changes what is chosen, and nothing is")
	case o.experts%o.EP != 0:
		return 0, train.Usagef("-ep %d: %d experts do not divide over the ranks", o.EP, o.experts)
	case o.Load != "":
		return 0, train.Usagef("-load reads models without experts")
	}
	_, _, err = o.newModel()
	return dtype, err
}

// newModel returns a model without values, and its layers of experts.
func (o *options) newModel() (*gpt.Model, []*moe.Layer, error) {
	m, err := o.Llama()
	if err != nil {
		return nil, nil, err
	}
	var layers []*moe.Layer
	for _, b := range m.Blocks {
		hidden := max(1, b.MLP.(*nn.GatedMLP).Up.W.Dims()[0]/(o.topK+o.shared))
		l := moe.NewLayer(moe.Config{
			Features: m.Config.Width, Hidden: hidden, Experts: o.experts, Shared: o.shared * hidden,
			Router:   router.Config{Top: o.topK, Normalize: o.topK > 1, Bias: o.bias > 0, Forced: o.forced},
			Capacity: o.capacity, Balance: o.aux,
		})
		b.MLP, layers = l, append(layers, l)
	}
	return m, layers, nil
}
