package optim

import "github.com/ringo-ml/ringo/tensor"

// clipping computes the norm of all gradients, and the factor for them, in the memory of the gradients: if that is a device's, the host
// does not wait for it.
type clipping struct {
	blocks tensor.Tensor // sums of squares of the blocks of all gradients
	sums   tensor.Tensor // sum, and the index of the first of the blocks that is not finite
	sum    tensor.Tensor // of the squares of all gradients
	factor tensor.Tensor // of the gradients, their norm, and the first step whose norm is not finite (tensor.OpClip)
	at     int           // blocks in use
	firsts []firstBlock  // of the gradients in blocks
	// counted says which parameters' gradients this rank adds to the sum over ranks; nil: not known yet, or no Norm.
	counted []bool
}

// firstBlock says where the blocks of a gradient begin.
type firstBlock struct {
	at int
	of *paramState
}

// clipFloats is the number of floats that are needed in addition to the blocks.
const clipFloats = 2 + 4

func newClipping(dev tensor.Device, blocks int) clipping {
	all := newState(dev, tensor.Float64, blocks+clipFloats)
	return clipping{blocks: all.Range(0, blocks), sums: all.Range(blocks, blocks+2), sum: all.Range(blocks, blocks+1),
		factor: all.Range(blocks+2, blocks+clipFloats)}
}

// gradScale computes the norm of all gradients, and the factor for them: it undoes the loss's scale and limits the norm to Clip
// (torch.nn.utils.clip_grad_norm_). ok is false if the norm is not finite, and the step is skipped.
func (o *Optimizer) gradScale() (ok bool, err error) {
	if o.norm != nil && o.counted == nil {
		if err := o.findCounted(); err != nil {
			return false, err
		}
	}
	o.sumSquares(func(i int) bool { return o.norm == nil || o.counted[i] })
	a := o.exec.Args(tensor.OpGradNorm, tensor.Float64).Out(o.sums).In(o.blocks)
	a.I[0] = o.at
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
	if o.later() {
		a.F[2] = float64(o.steps + 1)
		if r := o.exec.Recording(); r != nil {
			r.Vary(func(a *tensor.Args) { a.F[2] = float64(o.steps + 1) })
		}
	}
	o.exec.Launch()
	switch {
	case o.scaler != nil:
		return o.scaler.update(o.GradNorm()), nil
	case o.later():
		return true, nil
	}
	return o.checkNorm()
}

// scales reports whether gradients are multiplied by a factor before they are used.
func (o *Optimizer) scales() bool { return o.clip != 0 || o.scaler != nil }

// sumSquares computes the sums of squares of the gradients that count.
func (o *Optimizer) sumSquares(counts func(i int) bool) {
	o.at, o.firsts = 0, o.firsts[:0]
	for _, d := range [...]tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		a := o.exec.Args(tensor.OpSumSquares, d).Out(o.blocks)
		a.I[0] = o.at
		for i, s := range o.states {
			if s.ready() && s.p.Grad.Len() > 0 && s.p.Grad.DType() == d && counts(i) {
				a.List = append(a.List, s.p.Grad.Ptr())
				a.ListLen = append(a.ListLen, s.p.Grad.Len())
				o.firsts = append(o.firsts, firstBlock{o.at, s})
				o.at += sumBlocks(s.p.Grad.Len())
			}
		}
		if len(a.List) > 0 {
			o.exec.Launch()
		}
	}
}

// sumBlocks is the number of blocks of a gradient of n elements.
func sumBlocks(n int) int { return (n + tensor.SumSquaresBlock - 1) / tensor.SumSquaresBlock }
