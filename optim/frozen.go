package optim

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// frozen returns the parameters that are not trained now.
func frozen(params nn.Params) (list nn.Params) {
	for _, p := range params {
		if p.Frozen() {
			list = append(list, p)
		}
	}
	return list
}

// checkIdle panics if a parameter that was frozen when the optimizer was made has a gradient now. The step would not change it, and the
// next Backward would find the gradient still there.
func (o *Optimizer) checkIdle() {
	for _, p := range o.idle {
		if p.HasGrad() && !p.Frozen() {
			panic(&tensor.Failure{Op: "optim.Step " + p.Name(), Shapes: []tensor.Shape{p.Local.Shape()},
				Err: fmt.Errorf("it was frozen when the optimizer was made, which has no state for it, and unfrozen since: " +
					"make the optimizer while all that will train is unfrozen, and freeze again afterwards, or make a new one")})
		}
	}
}

// mustBeSummed panics if p's gradient is not summed over the ranks: copies of p would become different.
func mustBeSummed(p *tensor.Param) {
	if p.Unsummed() {
		panic(&tensor.Failure{Op: "optim.Step " + p.Name(), Shapes: []tensor.Shape{p.Local.Shape()},
			Err: errors.New("its gradient is not summed over the ranks yet: the last Backward before a step has no tensor.More")})
	}
}
