package optim

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// rule is the part that differs between optimizers: a multi-tensor kernel, and the state of each parameter.
type rule interface {
	op() tensor.Op
	// state names the tensors kept for each parameter, with the names of PyTorch's state_dict.
	state() []string
	// set sets the kernel's attributes. The first step is 1.
	set(a *tensor.Args, lr, decay float64, step int)
}

type sgd struct {
	momentum, dampening float64
	nesterov            bool
}

func (r *sgd) op() tensor.Op { return tensor.OpSGD }

func (r *sgd) state() []string {
	return []string{"momentum_buffer"}[:flag(r.momentum != 0)]
}

func (r *sgd) set(a *tensor.Args, lr, decay float64, step int) {
	a.I[0], a.I[1] = flag(r.nesterov), flag(step == 1)
	a.F = [8]float64{lr, r.momentum, r.dampening, decay}
}

type adam struct {
	beta1, beta2, eps float64
	decoupled         bool
}

func (r *adam) op() tensor.Op   { return tensor.OpAdam }
func (r *adam) state() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (r *adam) set(a *tensor.Args, lr, decay float64, step int) {
	a.I[0], a.I[1] = flag(r.decoupled), step
	a.F = [8]float64{lr, r.beta1, r.beta2, r.eps, decay}
}

// newState returns memory for n elements of an optimizer's state.
func newState(dev tensor.Device, dtype tensor.DType, n int) tensor.Tensor {
	return tensor.NewFor(memory.OptimizerState, dev, dtype, n)
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
