package optim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// AdamConfig configures NewAdam. The zero value of a field is its default.
type AdamConfig struct {
	LR          float64    // learning rate; 0: 1e-3
	Betas       [2]float64 // decay rates of the moments; both 0: 0.9 and 0.999
	Eps         float64    // added to the root of the second moment; 0: 1e-8
	WeightDecay float64    // 0: none (PyTorch's AdamW has 0.01)
	Schedule    Schedule   // multiplies LR; nil: constant
	Groups      []Group    // a parameter uses the first one that matches
	Clip        float64    // largest norm of all gradients together; 0: not clipped
	Norm        Norm       // sums the norm over ranks; nil: this rank holds all gradients whole
	Scaler      *Scaler    // of the loss, for Float16; nil: the gradients are not scaled
	Nonfinite   Nonfinite  // what Step does if the loss or a gradient is not finite, unless there is a Scaler; zero: Stop
}

// AdamWConfig configures NewAdamW, with the fields of AdamConfig.
type AdamWConfig AdamConfig

// SGDConfig configures NewSGD. The zero value of a field is its default.
type SGDConfig struct {
	LR          float64   // learning rate, which must be given
	Momentum    float64   // 0: none
	Dampening   float64   // the gradient enters the momentum times 1−Dampening
	Nesterov    bool      // needs momentum and no dampening
	WeightDecay float64   // added to the gradient, times the parameter
	Schedule    Schedule  // multiplies LR; nil: constant
	Groups      []Group   // a parameter uses the first one that matches
	Clip        float64   // largest norm of all gradients together; 0: not clipped
	Norm        Norm      // sums the norm over ranks; nil: this rank holds all gradients whole
	Scaler      *Scaler   // of the loss, for Float16; nil: the gradients are not scaled
	Nonfinite   Nonfinite // what Step does if the loss or a gradient is not finite, unless there is a Scaler; zero: Stop
}

// Schedule returns the factor of the learning rate in a step; the first step is 0. It may be any function; nil is the constant 1. Package
// schedule has many.
type Schedule func(step int) float64

// Group has settings for some of the parameters.
type Group struct {
	Match       func(p *tensor.Param) bool // which parameters, which have the shapes of one rank here; see Vectors and Only
	LRScale     float64                    // multiplies the learning rate; 0: 1
	WeightDecay float64                    // instead of the configuration's; 0: none
}

// Vectors matches parameters of at most one dimension: biases, and the scales of norms.
func Vectors(p *tensor.Param) bool { return len(p.Dims()) < 2 }

// Only returns a match for the given parameters.
func Only(params ...*tensor.Param) func(*tensor.Param) bool {
	return func(p *tensor.Param) bool { return slices.Contains(params, p) }
}

// Norm sums x over all ranks of the model, in place; in most cases it is r.World. With data parallelism alone, every rank holds all
// gradients, and no Norm is needed. If a rank holds a part of a parameter, Clip, Skip and a Scaler require it. Of the ranks that hold an
// element, one counts it. The first Step returns an error unless the ranks together hold each element.
type Norm interface {
	SumFloats(x []float64) error
	Rank() int
	Size() int
}

// TensorNorm is a Norm that sums a tensor over all ranks, in place, without making the host wait. With another Norm, clipping waits for the
// gradients if they are on a device with its own memory.
type TensorNorm interface {
	Norm
	SumTensor(x tensor.Tensor) error
}

// NewSGD returns stochastic gradient descent, torch.optim.SGD. Like the functions below, it panics with a *tensor.Failure if the
// configuration is wrong or a parameter was never made.
func NewSGD(params nn.Params, c SGDConfig) *Optimizer {
	if c.Nesterov && (c.Momentum == 0 || c.Dampening != 0) {
		fail("Nesterov needs momentum and no dampening")
	}
	if c.LR == 0 {
		fail("SGDConfig.LR is 0, and SGD has no default: set it; to leave parameters as they are, use SetLR(0) or Freeze")
	}
	notNegative("Momentum", c.Momentum)
	notNegative("Dampening", c.Dampening)
	return newOptimizer(params, &sgd{c.Momentum, c.Dampening, c.Nesterov}, nil, AdamConfig{LR: c.LR, WeightDecay: c.WeightDecay,
		Schedule: c.Schedule, Groups: c.Groups, Clip: c.Clip, Norm: c.Norm, Scaler: c.Scaler, Nonfinite: c.Nonfinite})
}

// NewAdam returns Adam (Kingma and Ba 2015), torch.optim.Adam: weight decay is added to the gradient.
func NewAdam(params nn.Params, c AdamConfig) *Optimizer { return newAdam(params, c, false, nil) }

// NewAdamW returns AdamW (Loshchilov and Hutter 2019), torch.optim.AdamW: weight decay shrinks the parameters directly.
func NewAdamW(params nn.Params, c AdamWConfig) *Optimizer {
	return newAdam(params, AdamConfig(c), true, nil)
}

// newAdam has a rule for some of the parameters, or nil.
func newAdam(params nn.Params, c AdamConfig, decoupled bool, b beside) *Optimizer {
	c.Betas, c.Eps = cmp.Or(c.Betas, [2]float64{0.9, 0.999}), cmp.Or(c.Eps, 1e-8)
	for _, b := range c.Betas {
		if !(b >= 0 && b < 1) {
			fail("Betas %v are not in [0,1)", c.Betas)
		}
	}
	notNegative("Eps", c.Eps)
	return newOptimizer(params, &adam{c.Betas[0], c.Betas[1], c.Eps, decoupled}, b, c)
}

// check panics if what all configurations have is wrong, and sets the default of LR.
func (c *AdamConfig) check() {
	notNegative("LR", c.LR)
	notNegative("WeightDecay", c.WeightDecay)
	if !(c.Clip >= 0) { // infinity: compute the norm, but do not clip
		fail("Clip is %v, want 0 (no clipping) or more", c.Clip)
	}
	c.Nonfinite.check()
	c.LR = cmp.Or(c.LR, 1e-3)
	for i, g := range c.Groups {
		if g.Match == nil {
			fail("group %d has no Match", i)
		}
		notNegative("LRScale", g.LRScale)
		notNegative("WeightDecay", g.WeightDecay)
	}
}

func notNegative(name string, v float64) {
	if !(v >= 0 && v <= math.MaxFloat64) {
		fail("%s is %v, want 0 or more", name, v)
	}
}

func fail(format string, a ...any) {
	panic(&tensor.Failure{Op: "optim", Err: fmt.Errorf(format, a...)})
}
