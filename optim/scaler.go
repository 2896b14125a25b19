package optim

import "github.com/ringo-ml/ringo/tensor"

// Scaler is dynamic loss scaling, torch.amp.GradScaler with its defaults. Small gradients would become 0 in Float16. So the loss is
// multiplied by Scale, and the optimizer divides the gradients by it. Give the Scaler to the optimizer's configuration, and its Scale to
// each Backward:
//
//	tape.Backward(loss, tensor.Scale(scaler.Scale))
//
// If a gradient of a step is not finite, the step changes only Scale, which is halved; it does not count in the optimizer's Steps. To know
// this, Step waits for the gradients, also on a device with its own memory. All ranks decide the same, because the norm of all gradients
// decides. Both fields are the Scaler's state, which is a part of the optimizer's state. Two optimizers whose Steps follow one Backward
// have a Scaler each, and a loss each.
type Scaler struct {
	Scale float64 `json:"scale"` // the factor of the loss
	Good  int     `json:"good"`  // steps since Scale last changed; after 2000 it is doubled
}

// NewScaler returns a Scaler that starts at 65536.
func NewScaler() *Scaler { return &Scaler{Scale: 1 << 16} }

// update adapts Scale after the gradients of a step, which have the given norm. It reports whether the step may be done.
func (s *Scaler) update(norm float64) bool {
	if norm-norm != 0 {
		s.Scale, s.Good = s.Scale/2, 0
		return false
	}
	if s.Good++; s.Good == 2000 {
		s.Scale, s.Good = 2*s.Scale, 0
	}
	return true
}

// mustHaveOneScale panics if Scale has changed since p's gradient was made: it would be divided by another number than it was multiplied
// by.
func mustHaveOneScale(p *tensor.Param) {
	if was, changed := p.Rescaled(); changed {
		failStep(p, nil, "Scale was %v when its gradient was made, and is %v now: another optimizer with the same Scaler has changed it in "+
			"its Step. Give each its own Scaler and Backward, or call Backward of the second loss behind the Step of the first", was, p.LossScale())
	}
}

// Scaler returns that of the configuration, or nil.
func (o *Optimizer) Scaler() *Scaler { return o.conf.Scaler }

// unscaled is that of gradients without a Scaler.
var unscaled = 1.0

// lossScale returns by what gradients are divided.
func (o *Optimizer) lossScale() *float64 {
	if o.conf.Scaler == nil {
		return &unscaled
	}
	return &o.conf.Scaler.Scale
}

// tellScale tells p by what its gradient is divided.
func (o *Optimizer) tellScale(p *tensor.Param) { p.SetLossScale(o.lossScale()) }
