package lm

import (
	"flag"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train"
)

// mixture describes the experts that replace MLPs. Without experts, MLPs are not replaced.
type mixture struct {
	experts, topK, shared int
	capacity, aux, bias   float64
	forced                bool
}

func (o *Options) mixtureFlags(fs *flag.FlagSet) {
	m := &o.mixture
	fs.IntVar(&m.experts, "experts", 8,
		"experts of each layer; together, those of a token and the shared ones have the size of an MLP of examples/gpt")
	fs.IntVar(&m.topK, "topk", 2, "experts of a token")
	fs.IntVar(&m.shared, "shared", 0, "shared experts, which see all tokens")
	fs.Float64Var(&m.capacity, "capacity", 0, "slots of an expert, as a multiple of the mean: more are dropped (0: none are)")
	fs.Float64Var(&m.aux, "aux", 0.01, "weight of the balance loss (0: none)")
	fs.Float64Var(&m.bias, "bias", 0, "step by which biases that choose experts move towards balance (0: none)")
	fs.BoolVar(&m.forced, "forced", false, "tokens take experts in turn, whatever the router says: for benchmarks alone")
	fs.IntVar(&o.ep, "ep", 1, "ranks that share the experts")
}

// checkMixture returns an error for impossible options.
func (o *Options) checkMixture() error {
	positive := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	switch m := o.mixture; {
	case m.experts == 0:
		return nil
	case m.experts < 1 || m.topK < 1 || m.topK > m.experts || m.shared < 0:
		return train.Usagef("-experts %d -topk %d -shared %d: a token has at least one of the experts", m.experts, m.topK, m.shared)
	case !positive(m.capacity) || !positive(m.aux) || !positive(m.bias):
		return train.Usagef("-capacity %v -aux %v -bias %v: want numbers that are not negative", m.capacity, m.aux, m.bias)
	case m.forced && m.bias > 0:
		return train.Usagef("-bias with -forced: a bias changes what is chosen, and nothing is")
	case o.ep > 0 && m.experts%o.ep != 0: // smaller numbers are an error of the layout
		return train.Usagef("-ep %d: %d experts do not divide over the ranks", o.ep, m.experts)
	case o.load != "":
		return train.Usagef("-load reads models without experts")
	}
	return nil
}

// mix replaces a model's MLPs by experts.
func (m *mixture) mix(model *gpt.Model) {
	if m.experts == 0 {
		return
	}
	for _, b := range model.Blocks {
		hidden := max(1, b.MLP.(*nn.GatedMLP).Up.W.Dims()[0]/(m.topK+m.shared))
		b.MLP = moe.NewLayer(moe.Config{
			Features: model.Config.Width, Hidden: hidden, Experts: m.experts, Shared: m.shared * hidden,
			Router:   router.Config{Top: m.topK, Normalize: m.topK > 1, Bias: m.bias > 0, Forced: m.forced},
			Capacity: m.capacity, Balance: m.aux,
		})
	}
}

// name is the program's name.
func (m *mixture) name() string {
	if m.experts == 0 {
		return "gpt"
	}
	return "moe"
}

// layersOf returns a model's layers with experts.
func layersOf(model *gpt.Model) (list []*moe.Layer) {
	for _, b := range model.Blocks {
		if b == nil { // of another stage
			continue
		}
		if l, ok := b.MLP.(*moe.Layer); ok {
			list = append(list, l)
		}
	}
	return list
}

// balance records which experts were chosen in the step.
func (t *trainer) balance() error {
	loads, err := t.balancer.Step()
	for i, l := range loads {
		total := int64(0)
		for _, n := range l.Chosen {
			total += n
		}
		t.loop.Log(fmt.Sprintf("cv of layer %d", i), l.CV())
		t.loop.Log(fmt.Sprintf("entropy of layer %d", i), l.Entropy())
		if t.o.capacity > 0 {
			t.loop.Log(fmt.Sprintf("dropped of layer %d", i), float64(l.Dropped)/float64(max(1, total)))
		}
		for e, n := range l.Chosen {
			t.loop.Log(fmt.Sprintf("load of layer %d[%d]", i, e), float64(n)*float64(len(l.Chosen))/float64(max(1, total)))
		}
	}
	return err
}

// layerOfExperts is the summary of a layer. Numbers of experts are means over the last 100 steps.
type layerOfExperts struct {
	CV      float64 `json:"load_cv"` // standard deviation of the experts' slots over their mean
	Entropy float64 `json:"entropy"` // of the expert of a slot, in nats
	Dropped float64 `json:"dropped"` // fraction of the slots
	Forced  bool    `json:"forced"`  // -forced: the router chose nothing
	Sent    uint64  `json:"bytes"`   // to other experts and back, by this rank in training steps
}

func (t *trainer) ofExperts() (list []layerOfExperts) {
	mean := func(name string, layer int) float64 {
		_, values := t.loop.Values(fmt.Sprintf("%s of layer %d", name, layer))
		sum := 0.0
		values = values[max(0, len(values)-100):]
		for _, v := range values {
			sum += v
		}
		return sum / float64(max(1, len(values)))
	}
	for i := range layersOf(t.model) {
		list = append(list, layerOfExperts{mean("cv", i), mean("entropy", i), mean("dropped", i), t.o.forced, t.layers[i]})
	}
	return list
}
