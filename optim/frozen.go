package optim

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// checkFrozen panics if a parameter that was frozen when the optimizer was made has a gradient now. The step would not change it, and the
// next Backward would find the gradient still there.
func (o *Optimizer) checkFrozen() {
	for _, p := range o.frozen {
		if p.HasGrad() && !p.Frozen() {
			failStep(p, nil, "it was frozen when the optimizer was made, which has no state for it, and unfrozen since: "+
				"make the optimizer while all that will train is unfrozen, and freeze again afterwards, or make a new one")
		}
	}
}

// mustHaveGradients panics if no parameter has a gradient in the first step: the loss depends on other parameters than the optimizer has.
func (o *Optimizer) mustHaveGradients() {
	if o.steps > 0 || len(o.states) == 0 || slices.ContainsFunc(o.states, (*paramState).ready) {
		return
	}
	failStep(o.states[0].P, nil, "neither it nor another parameter of this optimizer has a gradient: call Backward with a loss of the model "+
		"whose parameters the optimizer was given (nn.ParamsOf, or what Attach returned), and Step after it. In a pipeline, the schedule "+
		"trains, and a stage whose output is detached is frozen (Freeze)")
}

// mustBeItsValue panics if p is whole and Forward uses other memory than Step updates: training would have no effect.
func mustBeItsValue(p *tensor.Param) {
	used, updated := p.Value, p.Local
	if !p.Placement().Sharded() && updated.Len() > 0 && used.Valid() && used.Len() == updated.Len() && used.Ptr() != updated.Ptr() {
		failStep(p, nil, "its Value, which Forward uses, is other memory than its Local, which Step updates: p.SetValue(x) replaces both")
	}
}

// mustBeSummed panics if p's gradient is not summed over the ranks: copies of p would become different.
func mustBeSummed(p *tensor.Param) {
	if p.Owner() != nil && p.Partial() {
		failStep(p, nil, "its gradient is not summed over the ranks yet: %v did not get the end of a Backward. The last Backward before "+
			"a step has no tensor.More, its forward pass is after Attach, and it has not failed", p.Owner())
	}
}

// Accumulates reports whether gradients of microbatches wait for a Backward without tensor.More, and then for Step. They are in no State.
func (o *Optimizer) Accumulates() bool {
	return slices.ContainsFunc(o.states, func(s *paramState) bool { return s.P.Partial() })
}

// failStep panics because a Step cannot update p. Without shapes, the Failure has that of p.
func failStep(p *tensor.Param, shapes []tensor.Shape, format string, a ...any) {
	if shapes == nil {
		shapes = []tensor.Shape{p.Local.Shape()}
	}
	panic(&tensor.Failure{Op: "optim.Step " + p.Name(), Shapes: shapes, Err: fmt.Errorf(format, a...)})
}
