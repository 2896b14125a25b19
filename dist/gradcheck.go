package dist

import (
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// scaled finds gradients that the program multiplies, behind Backward, by the number of ranks or by 1 / it.
type scaled struct {
	ranks   int
	first   bool      // this rank warns
	samples []sample  // of the step that was compared last; nil: none, or looked at
	excuses []float64 // 1 / numbers by which the gradients of that step may rightly be multiplied
	by      float64   // by what those of the compared step before were
	passes  int       // Backwards since the last step
	micro   int       // those of the step
}

// sample is an element of a gradient, and what it was at the end of Backward.
type sample struct {
	element tensor.Tensor
	was     float64
}

// sampled is how many elements of a gradient are looked at for a sample.
const sampled = 64

// sample notes elements of the owner's gradients of a step: of each parameter the largest of the first ones. Those of another owner may
// still be summed, in memory that it takes away.
func (c *scaled) sample(owner tensor.Hooks, params []*tensor.Param) {
	c.samples = nil
	for _, p := range params {
		if p.Owner() != owner || !p.HasGrad() || p.Grad.IsZero() || !p.Grad.Contiguous() || !p.Grad.Device().Host() || p.Grad.DType().IsHalf() {
			continue
		}
		x, at, was := p.Grad.ToLocal(), 0, 0.0
		for i, v := range tensor.Floats(x.Range(0, min(x.Len(), sampled))) {
			if math.Abs(v) > math.Abs(was) {
				at, was = i, v
			}
		}
		if was != 0 {
			c.samples = append(c.samples, sample{x.Range(at, at+1), was})
		}
	}
}

// factor returns by what all samples were multiplied since; 0 if not by one number, or if their memory was lent to others.
func (c *scaled) factor() (by float64) {
	for _, s := range c.samples {
		v := 0.0
		if tensor.Try(func() { v = tensor.Floats(s.element)[0] / s.was }) != nil {
			return 0
		}
		switch {
		case by == 0:
			by = v
		case math.Abs(v-by) > 1e-5*math.Abs(by):
			return 0
		}
	}
	return by
}

// excuse notes what a program may rightly undo: the number of the step's microbatches, that of the batch's rows, and what multiplied a
// loss.
func (c *scaled) excuse(of given) {
	c.excuses = append(c.excuses[:0], float64(c.micro))
	for _, f := range of.Fed {
		c.excuses = append(c.excuses, float64(f.Total))
	}
	for _, f := range of.Factors {
		if f.Hand != 0 {
			c.excuses = append(c.excuses, f.Hand)
		}
	}
}

// Begin begins a Backward; again says that the one before failed. It warns if the program itself multiplied the gradients of two steps that
// are compared by the number of ranks or by 1 / it: they are sums over the ranks, of losses that divide by the rows of all. A program may
// do so with the mean of microbatches, or undo what it multiplied the loss by.
func (c *StepCheck) Begin(what string, again bool) {
	if again {
		c.Forget()
	}
	if c.samples == nil || !c.first || c.ranks < 2 {
		return
	}
	by, n := c.factor(), float64(c.ranks)
	c.samples = nil
	is := func(x float64) bool { return math.Abs(by/x-1) < 1e-5 }
	if !is(n) && !is(1/n) || slices.ContainsFunc(c.excuses, func(x float64) bool { return is(1 / x) }) {
		by = 0
	}
	if by != 0 && is(c.by) && !c.warned {
		c.warned = true
		often, out := "the number of ranks", "leave a second sum over the ranks out"
		if by < 1 {
			often, out = "1 / the number of ranks", "leave it out"
		}
		slog.Warn(fmt.Sprintf("%s: the program multiplied all gradients by %g between Backward and the next one, which is %s: if it is meant to "+
			"make them those of all ranks, %s; Backward has added them up, and losses divide by the rows of all ranks", what, by, often, out))
	}
	c.by = by
}
