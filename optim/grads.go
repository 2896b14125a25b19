package optim

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/grads"
)

// shares returns what this rank has of the parameters.
func (o *Optimizer) shares() []grads.Share {
	shares := make([]grads.Share, len(o.states))
	for _, s := range o.states {
		p := s.P
		lo, hi := p.Placement().Range()
		shares[s.index] = grads.Share{Name: p.Name(), Shape: p.Global(), Of: fmt.Sprint(p.Placement().Boxes()), Lo: lo, Hi: hi}
	}
	return shares
}

// squares returns the sum of the squares of each gradient, without the loss's scale; 0 if there is none.
func (o *Optimizer) squares() []float64 {
	sums := make([]float64, len(o.states))
	for i, x := range o.norms.Each(1 / *o.lossScale()) {
		sums[o.states[i].index] = x
	}
	return sums
}
