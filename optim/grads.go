package optim

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/tensor"
)

// begin checks that a Step can run, and writes the norms of gradients if RINGO_GRADS asks for them: complete, and before they are clipped.
func (o *Optimizer) begin() (err error) {
	o.checkIdle()
	o.mustHaveGradients()
	for _, s := range o.states {
		s.check()
	}
	if o.grads == nil {
		if o.grads, err = grads.Create(o.exec.Device(), o.steps, o.shares); err != nil {
			o.grads = nil
			return err
		}
	}
	switch {
	case !o.grads.Wanted():
		return nil
	case o.exec.Recording() != nil:
		return errors.New("optim: RINGO_GRADS asks for the gradients of every step, and capture.New records one without reading them: " +
			"RINGO_DEBUG=1 runs each step")
	}
	return o.grads.Step(o.squares())
}

// shares returns what this rank has of the parameters.
func (o *Optimizer) shares() []grads.Share {
	shares := make([]grads.Share, len(o.states))
	for _, s := range o.states {
		p := s.p
		lo, hi := p.Placement().Range()
		shares[s.place] = grads.Share{Name: p.Name(), Shape: p.Global(), Of: fmt.Sprint(p.Placement().Boxes()), Lo: lo, Hi: hi}
	}
	return shares
}

// squares returns the sum of the squares of each gradient, without the loss's scale; 0 if there is none.
func (o *Optimizer) squares() []float64 {
	o.sumSquares(func(int) bool { return true })
	blocks, scale := tensor.Data[float64](tensor.ToHost(o.blocks)), 1.0
	if o.scaler != nil {
		scale = 1 / o.scaler.Scale
	}
	sums := make([]float64, len(o.states))
	for _, f := range o.firsts {
		for _, x := range blocks[f.at : f.at+sumBlocks(f.of.p.Grad.Len())] {
			sums[f.of.place] += float64(x * scale * scale)
		}
	}
	return sums
}
