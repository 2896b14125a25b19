package ddp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Naive is Attach in its simplest form: after Backward, one all-reduce per parameter, one after the other. Of the Config
// it knows Over, DType, Seed and AllowUnused.
func Naive(g *dist.Group, model any, c Config) (nn.Params, error) {
	params, err := prepare(g, model, c)
	if err != nil {
		return nil, err
	}
	n := &naive{g, func(p *tensor.Param) *dist.Group { return c.group(g, p) }, params, c.AllowUnused, tensor.NewExec(g.Device())}
	for _, p := range params {
		if err := p.Own(n, n.over(p).Axes()); err != nil {
			return nil, fmt.Errorf("ddp: %w", err)
		}
	}
	return params, nil
}

type naive struct {
	g           *dist.Group
	over        func(*tensor.Param) *dist.Group
	params      nn.Params
	allowUnused bool
	exec        *tensor.Exec
}

// String names the owner of gradients in errors.
func (*naive) String() string { return "ddp (naive)" }

func (n *naive) BeforeUse(*tensor.Param, tensor.Phase) {}
func (n *naive) BackwardBegin(bool)                    {}
func (n *naive) Changed(*tensor.Param)                 {}

func (n *naive) GradReady(_ *tensor.Param, after tensor.Pending) tensor.Pending { return after }

func (n *naive) BackwardDone(last bool) error {
	if !last {
		return nil
	}
	for _, p := range n.params {
		if p.Frozen() && !p.HasGrad() {
			continue
		}
		if n.allowUnused {
			if used, err := n.usedSomewhere(p); err != nil {
				return err
			} else if !used {
				continue
			}
		}
		if !p.HasGrad() {
			return unusedError([]*tensor.Param{p})
		}
		if err := n.over(p).AllReduce(p.Grad, dist.Sum).Wait(); err != nil {
			return err
		}
	}
	markSummed(n.params)
	return nil
}

// usedSomewhere reports whether some rank has a gradient of p. If this one has none, it gets zeros.
func (n *naive) usedSomewhere(p *tensor.Param) (bool, error) {
	ranks := []float64{0}
	if p.HasGrad() {
		ranks[0] = 1
	}
	if err := n.g.SumFloats(ranks); err != nil {
		return false, err
	}
	if ranks[0] > 0 && !p.HasGrad() {
		if p.Grad.IsZero() {
			p.Grad = tensor.NewFor(memory.Gradients, p.Value.Device(), p.Value.DType(), p.Dims()...)
		}
		n.exec.Fill(p.Grad, 0)
		p.FillGrad()
	}
	return ranks[0] > 0, nil
}
