package optim

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// Scaler is dynamic loss scaling, torch.amp.GradScaler with its defaults: small gradients would vanish in Float16, so the
// loss is multiplied by Scale and the optimizer divides the gradients by it. Give it to the optimizer's configuration and
// to each Backward:
//
//	tape.Backward(loss, tensor.Scale(scaler.Scale))
//
// A step whose gradients are not all finite changes nothing but Scale, which is halved; it does not count as one of the
// optimizer's Steps. To know it, Step waits for the gradients, also on a device with memory of its own. All ranks decide the same, for the norm of the gradients decides. Both fields are its state, which is
// part of the optimizer's.
type Scaler struct {
	Scale float64 `json:"scale"` // what to multiply the loss by
	Good  int     `json:"good"`  // steps since Scale last changed; after 2000 it is doubled
}

// NewScaler returns a Scaler that starts at 65536.
func NewScaler() *Scaler { return &Scaler{Scale: 1 << 16} }

// update follows a step whose gradients had the given norm, and reports whether it may be done.
func (s *Scaler) update(norm float64) bool {
	if math.IsInf(norm, 0) || math.IsNaN(norm) {
		s.Scale, s.Good = s.Scale/2, 0
		return false
	}
	if s.Good++; s.Good == 2000 {
		s.Scale, s.Good = 2*s.Scale, 0
	}
	return true
}

// keeper is an owner of gradients that adds a part of one step's to the next one's (ddp.PowerSGD): it must know the scale of both.
type keeper interface {
	// Unscaled says that the optimizer divides p's gradient by *by; nil is 1.
	Unscaled(p *tensor.Param, by *float64)
}

// tellScale tells p's owner where the scale of p's gradient is.
func (c *common) tellScale(p *tensor.Param) {
	k, ok := p.Owner().(keeper)
	switch {
	case !ok:
	case c.scaler == nil:
		k.Unscaled(p, nil)
	default:
		k.Unscaled(p, &c.scaler.Scale)
	}
}
