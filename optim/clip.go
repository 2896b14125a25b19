package optim

import "github.com/ringo-ml/ringo/tensor"

// clipping is how the norm of all gradients and what to multiply them by are computed, where the gradients are: on a device,
// nobody waits for them.
type clipping struct {
	blocks tensor.Tensor // sums of squares, of the blocks of all gradients
	sums   tensor.Tensor // over the gradients that all ranks hold, over the others, and how many ranks' sums these are
	factor tensor.Tensor // of the gradients, and their norm
	at     int           // blocks in use
	sound  bool          // ranks were found to count each element once
}

// clipFloats is the number of floats besides the blocks.
const clipFloats = 3 + 2

func newClipping(dev tensor.Device, blocks int) clipping {
	all := tensor.NewFor(tensor.OptimizerState, dev, tensor.Float64, blocks+clipFloats)
	return clipping{blocks: all.Range(0, blocks), sums: all.Range(blocks, blocks+3), factor: all.Range(blocks+3, blocks+clipFloats)}
}

// gradScale computes the norm of all gradients and what to multiply them by, so that the loss's scale is undone and the norm is
// at most Clip (torch.nn.utils.clip_grad_norm_). ok is false if the loss is scaled and they are not finite.
func (o *Optimizer) gradScale() (ok bool, err error) {
	if !o.scales() {
		return true, nil
	}
	o.at = 0
	o.sumSquares(false)
	own := o.at
	o.sumSquares(true)
	a := o.exec.Args(tensor.OpGradNorm, tensor.Float64).Out(o.sums).In(o.blocks)
	a.I[0], a.I[1] = own, o.at-own
	o.exec.Launch()
	if o.norm != nil {
		if err := o.sumOverRanks(); err != nil {
			return false, err
		}
	}
	a = o.exec.Args(tensor.OpClip, tensor.Float64).Out(o.factor).In(o.sums)
	a.F[0], a.F[1] = 1, o.clip
	if o.scaler != nil {
		a.F[0] = 1 / o.scaler.Scale
	}
	o.exec.Launch()
	if o.scaler != nil {
		return o.scaler.update(o.GradNorm()), nil
	}
	return true, nil
}

// scales reports whether gradients are multiplied before they are used.
func (o *Optimizer) scales() bool { return o.clip != 0 || o.scaler != nil }

// sumSquares makes the sums of squares of the gradients of parameters that this rank answers for alone, or of those that all
// ranks hold.
func (o *Optimizer) sumSquares(everywhere bool) {
	for _, d := range [...]tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		a := o.exec.Args(tensor.OpSumSquares, d).Out(o.blocks)
		a.I[0] = o.at
		for i := range o.states {
			if s := &o.states[i]; o.counts(s, everywhere) && s.p.Grad.DType() == d {
				a.List = append(a.List, s.p.Grad.Ptr())
				a.ListLen = append(a.ListLen, s.p.Grad.Len())
				o.at += sumBlocks(s.p.Grad.Len())
			}
		}
		if len(a.List) > 0 {
			o.exec.Launch()
		}
	}
}

// counts reports whether a parameter's gradient belongs to the sum over those that all ranks hold (everywhere), or to the
// other one.
func (o *Optimizer) counts(s *paramState, everywhere bool) bool {
	if !s.ready() || s.p.Grad.Len() == 0 {
		return false
	}
	whole := o.norm == nil || s.p.Shard.Global == nil
	if everywhere || whole {
		return everywhere == whole
	}
	return s.p.Shard.Counts
}

// sumBlocks is the number of sums that a gradient of n elements has.
func sumBlocks(n int) int { return (n + tensor.SumSquaresBlock - 1) / tensor.SumSquaresBlock }
