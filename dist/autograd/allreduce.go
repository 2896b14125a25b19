package autograd

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// AllReduce adds up its input over the ranks. Then the ranks compute different things with the sum, so the gradient is a sum, too. It is
// Sum and Copy in one. Use it for the statistics of a batch whose rows are divided over the ranks.
type AllReduce struct{ Group *dist.Group }

// Name returns "autograd.AllReduce".
func (*AllReduce) Name() string { return "autograd.AllReduce" }

// Forward returns the sum, of the input's shape.
func (f *AllReduce) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	return (&Sum{f.Group}).Forward(c, in)
}

// Backward issues an all-reduce of the gradient, in its own memory.
func (f *AllReduce) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	(&Copy{f.Group}).Backward(c, g, grads)
}
