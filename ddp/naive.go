package ddp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Naive is Attach in its simplest form: after Backward, one all-reduce per parameter, one after the other. Of the Config
// it knows DType and Seed.
func Naive(g *dist.Group, model any, c Config) (nn.Params, error) {
	params, err := prepare(g, model, c)
	if err != nil {
		return nil, err
	}
	n := &naive{g, params}
	for _, p := range params {
		p.Hook(n)
	}
	return params, nil
}

type naive struct {
	g      *dist.Group
	params nn.Params
}

func (n *naive) BeforeUse(*tensor.Param, tensor.Phase) {}
func (n *naive) BackwardBegin(bool)                    {}

func (n *naive) GradReady(_ *tensor.Param, after tensor.Pending) tensor.Pending { return after }

func (n *naive) BackwardDone(last bool) error {
	if !last {
		return nil
	}
	for _, p := range n.params {
		if p.Frozen() {
			continue
		}
		if !p.HasGrad() {
			return unusedError([]*tensor.Param{p})
		}
		if err := n.g.AllReduce(p.Grad, dist.Sum).Wait(); err != nil {
			return err
		}
	}
	return nil
}
