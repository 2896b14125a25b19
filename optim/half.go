package optim

import (
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// grad returns the gradient in the type in which the kernel computes. The result is valid until the next call.
func (o *Optimizer) grad(s *paramState) tensor.Tensor {
	g := s.p.Grad
	if g.DType() == s.dtype {
		return g
	}
	if s.dtype != tensor.Float32 {
		fail("gradient of %v is %v; a %v parameter needs one of its own type", s.p, g.DType(), s.dtype)
	}
	if o.scratch.IsZero() { // all parameters share it
		most := 0
		for _, s := range o.states {
			most = max(most, s.p.Local.Len())
		}
		o.scratch = newState(o.exec.Device(), tensor.Float32, most)
	}
	if s.wide.IsZero() {
		s.wide = o.scratch.Range(0, s.p.Local.Len())
	}
	o.exec.Cast(s.wide, g)
	return s.wide
}

// syncMaster copies a 16-bit parameter to its master before the first step. It is not done earlier, because a checkpoint may set the value
// until then.
func (o *Optimizer) syncMaster(s *paramState) {
	if !s.master.IsZero() && !s.synced {
		o.exec.Cast(s.master, s.p.Local)
		s.synced = true
	}
}

// Reload is for values that were loaded without masters or averages. The next step copies the values of these parameters to their masters,
// and restarts their averages.
func (o *Optimizer) Reload(masters, averages nn.Params) {
	for _, s := range o.states {
		if slices.Contains(masters, s.p) {
			s.synced = false
		}
		if o.ema != nil && o.ema.begun && slices.Contains(averages, s.p) {
			o.syncMaster(s)
			tensor.Copy(s.average, s.value())
		}
	}
}

func (o *Optimizer) writeBack(s *paramState) {
	if !s.master.IsZero() {
		o.exec.Cast(s.p.Local, s.master)
	}
}
