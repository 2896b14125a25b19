package optim

import (
	"errors"

	"github.com/ringo-ml/ringo/tensor"
)

// GradSum is this rank's part of the squared norm of a parameter's gradient.
type GradSum struct {
	Param   *tensor.Param
	Squares float64 // sum of the squares of Param.Grad, without the loss's scale; 0 if there is no gradient
}

// Probe makes every Step call f with the sums of all parameters that it trains, when gradients are complete and before they are clipped.
// Step then waits for the device. If f returns an error, Step returns it and changes nothing. nil removes f.
func (o *Optimizer) Probe(f func(sums []GradSum) error) { o.probe = f }

// begin checks that a Step can run, and calls the probe.
func (o *Optimizer) begin() error {
	o.checkIdle()
	o.mustHaveGradients()
	for i := range o.states {
		o.states[i].check()
	}
	switch {
	case o.probe == nil:
		return nil
	case o.exec.Recording() != nil:
		return errors.New("optim: a Probe reads the gradients of every step, and tensor.Capture records one without its reads: " +
			"RINGO_DEBUG=1 runs each step")
	}
	return o.probe(o.gradSums())
}

// gradSums returns the sums of squares by parameter.
func (o *Optimizer) gradSums() []GradSum {
	at := make([]int, 1, len(o.states)+1) // first block of each parameter
	for i := range o.states {
		p, end := o.states[i].p, at[i]
		if p.HasGrad() && p.Grad.Len() > 0 {
			n := p.Grad.Len()
			a := o.exec.Args(tensor.OpSumSquares, p.Grad.DType()).Out(o.blocks)
			a.I[0] = end
			a.List, a.ListLen = append(a.List, p.Grad.Ptr()), append(a.ListLen, n)
			o.exec.Launch()
			end += sumBlocks(n)
		}
		at = append(at, end)
	}
	blocks, scale := tensor.Data[float64](tensor.ToHost(o.blocks)), 1.0
	if o.scaler != nil {
		scale = 1 / o.scaler.Scale
	}
	sums := make([]GradSum, len(o.states))
	for i := range o.states {
		sums[i].Param = o.states[i].p
		for _, x := range blocks[at[i]:at[i+1]] {
			sums[i].Squares += float64(x * scale * scale)
		}
	}
	return sums
}
