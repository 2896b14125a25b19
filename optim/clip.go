package optim

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// gradScale computes the norm of all gradients and returns what to multiply them by, so that the loss's scale is undone
// and the norm is at most Clip (torch.nn.utils.clip_grad_norm_). ok is false if the loss is scaled and they are not finite.
func (o *Optimizer) gradScale() (scale float64, ok bool, err error) {
	if o.clip == 0 && o.scaler == nil {
		return 1, true, nil
	}
	o.sums[0], o.sums[1], o.sums[2] = o.sumSquares(false), o.sumSquares(true), 1
	if o.norm != nil {
		if err := o.norm.SumFloats(o.sums); err != nil {
			return 0, false, err
		}
	}
	// What every rank holds was added up sums[2] times.
	o.total = math.Sqrt(o.sums[0] + o.sums[1]/o.sums[2])
	scale = 1
	if o.scaler != nil {
		scale = 1 / o.scaler.Scale
		o.total *= scale
		if !o.scaler.update(o.total) {
			return 0, false, nil
		}
	}
	if o.clip != 0 {
		scale *= min(1, o.clip/(o.total+1e-6))
	}
	return scale, true, nil
}

// sumSquares returns the sum of squares of the gradients of parameters that all ranks hold, or of those that this rank
// answers for alone.
func (o *Optimizer) sumSquares(everywhere bool) float64 {
	sum := 0.0
	for _, d := range [...]tensor.DType{tensor.Float32, tensor.Float64} {
		a := o.exec.Args(tensor.OpSumSquares, d).Out(o.norms)
		for i := range o.slots {
			if s := &o.slots[i]; o.counts(s, everywhere) && s.p.Grad.DType() == d {
				a.List = append(a.List, s.p.Grad.Ptr())
				a.ListLen = append(a.ListLen, s.p.Grad.Len())
			}
		}
		sum += o.launchSum(a)
	}
	for i := range o.slots {
		if s := &o.slots[i]; o.counts(s, everywhere) && s.p.Grad.DType().IsHalf() {
			g := o.grad(s)
			a := o.exec.Args(tensor.OpSumSquares, g.DType()).Out(o.norms)
			a.List, a.ListLen = append(a.List, g.Ptr()), append(a.ListLen, g.Len())
			sum += o.launchSum(a)
		}
	}
	return sum
}

// counts reports whether a slot's gradient belongs to the sum over those that all ranks hold (everywhere), or to the
// other one.
func (o *Optimizer) counts(s *slot, everywhere bool) bool {
	if !s.ready() || s.p.Grad.Len() == 0 {
		return false
	}
	whole := o.norm == nil || s.p.Shard.Global == nil
	if everywhere || whole {
		return everywhere == whole
	}
	return s.p.Shard.Counts
}

func (o *Optimizer) launchSum(a *tensor.Args) float64 {
	n := 0
	for _, l := range a.ListLen {
		n += sumBlocks(l)
	}
	if n == 0 {
		return 0
	}
	o.exec.Launch()
	sum := 0.0
	for _, v := range floats(o.norms)[:n] {
		sum += v
	}
	return sum
}

// sumBlocks is the number of sums that a gradient of n elements has.
func sumBlocks(n int) int { return (n + tensor.SumSquaresBlock - 1) / tensor.SumSquaresBlock }

// floats returns the elements of a Float64 tensor: its memory, or a copy of a device's.
func floats(x tensor.Tensor) []float64 {
	if x.Device().Host() {
		return tensor.Data[float64](x)
	}
	return tensor.Floats(x)
}
