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
	// set sets the kernel's attributes.
	set(a *tensor.Args, h hyper)
}

// hyper holds the hyperparameters of one launch of a rule's kernel.
type hyper struct {
	lr, decay float64
	step      int // from 1
}

type sgd struct {
	momentum, dampening float64
	nesterov            bool
}

func (r *sgd) op() tensor.Op { return tensor.OpSGD }

func (r *sgd) state() []string {
	if r.momentum == 0 {
		return nil
	}
	return []string{"momentum_buffer"}
}

func (r *sgd) set(a *tensor.Args, h hyper) {
	a.I[0], a.I[1] = flag(r.nesterov), flag(h.step == 1)
	a.F = [8]float64{h.lr, r.momentum, r.dampening, h.decay}
}

type adam struct {
	beta1, beta2, eps float64
	decoupled         bool
}

func (r *adam) op() tensor.Op   { return tensor.OpAdam }
func (r *adam) state() []string { return []string{"exp_avg", "exp_avg_sq"} }

func (r *adam) set(a *tensor.Args, h hyper) {
	a.I[0], a.I[1] = flag(r.decoupled), h.step
	a.F = [8]float64{h.lr, r.beta1, r.beta2, r.eps, h.decay}
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
