package optim

import (
	"github.com/ringo-ml/ringo/optim/internal/held"
	"github.com/ringo-ml/ringo/tensor"
)

// gradScale computes the norm of all gradients, and the factor for them: it undoes the loss's scale and limits the norm to Clip. ok is
// false if the norm is not finite, and the step is skipped.
func (o *Optimizer) gradScale() (ok bool, err error) {
	if o.conf.Norm != nil && o.norms.Counted == nil {
		sum := held.Sum{Field: "Norm", Of: "norm of gradients"}
		if o.norms.Counted, err = held.Count(o.conf.Norm, paramsOf(o.states), sum, o.settings()); err != nil {
			return false, err
		}
	}
	if err := o.norms.Sum(o.conf.Norm); err != nil {
		return false, err
	}
	var steps *int
	if o.later() {
		steps = &o.steps
	}
	o.norms.Clip(1 / *o.lossScale(), o.conf.Clip, steps)
	switch {
	case o.conf.Scaler != nil:
		return o.conf.Scaler.update(o.GradNorm()), nil
	case o.later():
		return true, nil
	}
	return o.checkNorm()
}

// scales reports whether gradients are multiplied by a factor before they are used.
func (o *Optimizer) scales() bool { return o.conf.Clip != 0 || o.conf.Scaler != nil }

// mustHoldAll panics if there is no Norm and this rank holds only a part of a parameter: the norm would be that of the part.
func (o *Optimizer) mustHoldAll() {
	if o.conf.Norm != nil || !o.scales() && o.conf.Nonfinite == Stop {
		return
	}
	for _, s := range o.states {
		mustHold(s.P, "there is no Norm: Clip, Scaler and Skip would go by the norm of this rank's part; give Config.Norm the group of all "+
			"ranks that hold parts (Norm: r.World)")
	}
}

// mustHold panics if this rank has a part of p.
func mustHold(p *tensor.Param, why string) {
	if p.Local.Len() != p.GlobalLen() {
		fail("this rank holds %d of the %d elements of %s, and %s", p.Local.Len(), p.GlobalLen(), p.Name(), why)
	}
}

func paramsOf(states []*paramState) []*tensor.Param {
	ps := make([]*tensor.Param, len(states))
	for i, s := range states {
		ps[i] = s.P
	}
	return ps
}
