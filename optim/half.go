package optim

import (
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// grad returns the gradient in the type in which the kernel computes. The result is valid until the next call.
func (o *Optimizer) grad(s *paramState) tensor.Tensor {
	g := s.P.Grad
	if g.DType() == s.DType {
		return g
	}
	if s.DType != tensor.Float32 {
		fail("gradient of %v is %v; a %v parameter needs one of its own type", s.P, g.DType(), s.DType)
	}
	if o.scratch.IsZero() { // all parameters share it
		most := 0
		for _, s := range o.states {
			most = max(most, s.P.Local.Len())
		}
		o.scratch = newState(o.exec.Device(), tensor.Float32, most)
	}
	if s.wide.IsZero() {
		s.wide = o.scratch.Range(0, s.P.Local.Len())
	}
	o.exec.Cast(s.wide, g)
	return s.wide
}

// Reload is for values that were loaded without masters or averages. The next step copies the values of these parameters to their masters,
// and restarts their averages.
func (o *Optimizer) Reload(masters, averages nn.Params) {
	for _, s := range o.states {
		if slices.Contains(masters, s.P) {
			s.Synced = false
		}
		if o.ema != nil && slices.Contains(averages, s.P) {
			o.ema.averages.Restart(&s.Param)
		}
	}
}
