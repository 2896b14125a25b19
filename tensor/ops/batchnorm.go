package ops

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// The operations of ChannelSums, BatchNorm and RunningStats, and of their gradients.
var OpChannelSums, OpChannelSumsGrad, OpBatchNorm, OpBatchNormGrad, OpRunningStats tensor.Op

func init() {
	OpChannelSums = register(tensor.OpSpec{Name: "channel_sums", Rows: tensor.RowsSum, Saves: 1, VJP: channelSumsVJP},
		channelSumsKernel[float32](), channelSumsKernel[float64]())
	OpChannelSumsGrad = register(tensor.OpSpec{Name: "channel_sums_grad", Const: true},
		channelSumsGradKernel[float32](), channelSumsGradKernel[float64]())
	OpBatchNorm = register(tensor.OpSpec{Name: "batch_norm", Rows: tensor.RowsFirst, Saves: 7, VJP: batchNormVJP},
		batchNormKernel[float32](), batchNormKernel[float64]())
	OpBatchNormGrad = register(tensor.OpSpec{Name: "batch_norm_grad", Const: true},
		batchNormGradKernel[float32](), batchNormGradKernel[float64]())
	OpRunningStats = register(tensor.OpSpec{Name: "running_stats", Const: true}, runningStatsKernel[float32](), runningStatsKernel[float64]())
}

// channels returns the shape of x [rows, channels, ..] as three dimensions.
func channels(op tensor.Op, x tensor.Tensor) [tensor.MaxNDim]int {
	d, rank := dimsOf(x)
	if rank < 2 {
		op.Fail([]tensor.Tensor{x}, "wants rows of channels [rows, channels, ..]")
	}
	return [tensor.MaxNDim]int{d[0], d[1], product(d[2:rank])}
}

// ChannelSums returns the sums from which BatchNorm gets the mean and the variance of each channel of x [rows, channels, ..], in Float64:
// the sum of its elements, the sum of their squares, and the number of elements of a channel, which makes 2·channels+1 numbers. They may be
// added over ranks that hold other rows of the batch.
func ChannelSums(x tensor.Tensor) tensor.Tensor {
	t := OpChannelSums.Tape(x)
	x = t.Packed(x)
	dims := channels(OpChannelSums, x)
	out := t.New(tensor.Float64, 2*dims[1]+1)
	t.Args(OpChannelSums, x.DType()).Out(out).In(x).Dim = dims
	t.Launch()
	t.Record(OpChannelSums, out, x)
	return out
}

func channelSumsVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	x := n.In(0)
	d := t.NewLike(x)
	if x.Len() > 0 {
		t.Args(OpChannelSumsGrad, x.DType()).Out(d).In(x).In(n.Grad()).Dim = channels(OpChannelSums, x)
		t.Launch()
	}
	t.AddGrad(n, 0, d)
}

// vector checks a weight or a bias of BatchNorm, which may be none.
func vector(t *tensor.Tape, x, v tensor.Tensor) tensor.Tensor {
	if v.IsZero() {
		return v
	}
	v = t.Packed(v)
	OpBatchNorm.SameDType(x, v)
	if v.Len() != x.Dim(1) {
		OpBatchNorm.Fail([]tensor.Tensor{x, v}, "wants a weight and a bias [channels]")
	}
	return v
}

// BatchNorm normalizes the channels of x [rows, channels, ..] to mean 0 and variance 1, then applies weight w and bias b [channels], which
// may be none (Ioffe and Szegedy 2015). sums are the [ChannelSums] of all rows. If they are those of this rank's rows, and other ranks hold
// other rows, it panics with a *tensor.Failure.
func BatchNorm(x, sums, w, b tensor.Tensor, eps float64) tensor.Tensor {
	t := OpBatchNorm.Tape(x)
	x, sums = t.Packed(x), t.Packed(sums)
	dims := channels(OpBatchNorm, x)
	if sums.DType() != tensor.Float64 || sums.Len() != 2*dims[1]+1 {
		OpBatchNorm.Fail([]tensor.Tensor{x, sums}, "wants the sums of ChannelSums, two of each channel and a count, in float64")
	}
	w, b = vector(t, x, w), vector(t, x, b)
	if bad := sums.Types().On(tensor.Partial); bad != 0 {
		OpBatchNorm.Refuse([]tensor.Tensor{x, sums},
			typing.Misfit{Axes: bad, Clash: typing.ClashStatistics, Have: tensor.Partial, Want: tensor.Varying})
	}
	t.NoteNumber("BatchNorm", x, 0, eps)
	out := t.NewLike(x)
	if out.Len() > 0 {
		a := t.Args(OpBatchNorm, x.DType()).Out(out).In(x).In(sums)
		maybeIn(maybeIn(a, w), b)
		a.Dim, a.F[0] = dims, eps
		t.Launch()
	}
	if n := t.Record(OpBatchNorm, out, x, sums, w, b); n != nil {
		n.F[0] = eps
	}
	return out
}

func batchNormVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, sums, w := n.In(0), n.In(1), n.In(2)
	grads := [4]tensor.Tensor{t.NewLike(x), t.New(tensor.Float64, sums.Len())}
	for i := 2; i < 4; i++ {
		if need>>i&1 != 0 {
			grads[i] = t.NewLike(n.In(i))
		}
	}
	a := t.Args(OpBatchNormGrad, x.DType())
	for _, d := range grads {
		maybeOut(a, d)
	}
	maybeIn(a.In(x).In(n.Grad()).In(sums), w)
	a.Dim, a.F[0] = channels(OpBatchNorm, x), n.F[0]
	t.Launch()
	for i, d := range grads {
		if need>>i&1 != 0 {
			t.AddGrad(n, i, d)
		}
	}
}

// RunningStats updates the running means and variances [channels] of a model from sums (see [ChannelSums]): each becomes (1−momentum)·old +
// momentum·new. The variances are the unbiased ones, as in PyTorch.
func RunningStats(means, variances *tensor.Buffer, sums tensor.Tensor, momentum float64) {
	t := OpRunningStats.Tape(sums)
	m, v := means.Value, variances.Value
	sums = t.Packed(sums)
	OpRunningStats.SameDType(m, v)
	if sums.DType() != tensor.Float64 || m.Len() != v.Len() || sums.Len() != 2*m.Len()+1 {
		OpRunningStats.Fail([]tensor.Tensor{m, v, sums}, "wants means and variances [channels], and the sums of ChannelSums")
	}
	a := t.Args(OpRunningStats, m.DType()).Out(m).Out(v).In(sums)
	a.Dim[0], a.F[0] = m.Len(), momentum
	t.Launch()
	means.Changed()
	variances.Changed()
}

// moments returns the mean and the biased variance of channel c.
func moments(sums []float64, c int) (mean, variance float64) {
	channels, n := len(sums)/2, sums[len(sums)-1]
	mean = sums[c] / n
	return mean, max(sums[channels+c]/n-float64(mean*mean), 0)
}

// channelCost is the number of elements of a channel.
func channelCost(a *tensor.Args) int { return a.Dim[0] * a.Dim[2] }

// eachRun calls f for each run of adjacent elements of channel c, in the order of the rows.
func eachRun(a *tensor.Args, c int, f func(lo, hi int)) {
	for r := range a.Dim[0] {
		at := (r*a.Dim[1] + c) * a.Dim[2]
		f(at, at+a.Dim[2])
	}
}

func channelSumsKernel[T float]() tensor.Kernel {
	sum := cpu.Parallel(dim1, channelCost, func(a *tensor.Args, lo, hi int) {
		sums, x := tensor.Operand[float64](a, 0), tensor.Operand[T](a, 1)
		for c := lo; c < hi; c++ {
			var s, q float64
			eachRun(a, c, func(lo, hi int) {
				for _, v := range x[lo:hi] {
					f := float64(v)
					s += f
					q += float64(f * f)
				}
			})
			sums[c], sums[a.Dim[1]+c] = s, q
		}
	})
	return func(q tensor.Queue, a *tensor.Args) {
		sum(q, a)
		tensor.Operand[float64](a, 0)[2*a.Dim[1]] = float64(a.Dim[0] * a.Dim[2])
	}
}

func channelSumsGradKernel[T float]() tensor.Kernel {
	return cpu.Parallel(dim1, channelCost, func(a *tensor.Args, lo, hi int) {
		d, x, g := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[float64](a, 2)
		for c := lo; c < hi; c++ {
			s, q := g[c], 2*g[a.Dim[1]+c]
			eachRun(a, c, func(lo, hi int) {
				for i, v := range x[lo:hi] {
					d[lo+i] = T(s + float64(q*float64(v)))
				}
			})
		}
	})
}

// scaleOf returns element c of w, or 1 if there is no w.
func scaleOf[T float](w []T, c int) float64 {
	if w == nil {
		return 1
	}
	return float64(w[c])
}

func batchNormKernel[T float]() tensor.Kernel {
	return cpu.Parallel(dim1, channelCost, func(a *tensor.Args, lo, hi int) {
		y, x, sums := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[float64](a, 2)
		w, b := tensor.Operand[T](a, 3), tensor.Operand[T](a, 4)
		for c := lo; c < hi; c++ {
			mean, variance := moments(sums, c)
			m, scale, shift := T(mean), T(scaleOf(w, c)/math.Sqrt(variance+a.F[0])), T(0)
			if b != nil {
				shift = b[c]
			}
			eachRun(a, c, func(lo, hi int) {
				for i, v := range x[lo:hi] {
					y[lo+i] = T((v-m)*scale) + shift
				}
			})
		}
	})
}

// batchNormGradKernel computes, with h = (x-mean)/sigma: dx = g·w/sigma, dw = Σ g·h, db = Σ g, and the gradient of the sums, which comes
// through mean and variance.
func batchNormGradKernel[T float]() tensor.Kernel {
	grads := cpu.Parallel(dim1, channelCost, func(a *tensor.Args, lo, hi int) {
		dx, ds, dw, db := tensor.Operand[T](a, 0), tensor.Operand[float64](a, 1), tensor.Operand[T](a, 2), tensor.Operand[T](a, 3)
		x, g, sums, w := tensor.Operand[T](a, 4), tensor.Operand[T](a, 5), tensor.Operand[float64](a, 6), tensor.Operand[T](a, 7)
		n := sums[len(sums)-1]
		for c := lo; c < hi; c++ {
			mean, variance := moments(sums, c)
			rstd, weight := 1/math.Sqrt(variance+a.F[0]), scaleOf(w, c)
			scale := T(weight * rstd)
			var sum, dot float64
			eachRun(a, c, func(lo, hi int) {
				for i, v := range g[lo:hi] {
					f := float64(v)
					sum += f
					dot += float64(f * (float64(x[lo+i]) - mean))
					dx[lo+i] = v * scale
				}
			})
			dot *= rstd
			if dw != nil {
				dw[c] = T(dot)
			}
			if db != nil {
				db[c] = T(sum)
			}
			square := -0.5 * weight * rstd * rstd * dot / n
			ds[c], ds[a.Dim[1]+c] = -weight*rstd*sum/n-float64(2*mean*square), square
		}
	})
	return func(q tensor.Queue, a *tensor.Args) {
		grads(q, a)
		ds := tensor.Operand[float64](a, 1)
		ds[len(ds)-1] = 0
	}
}

func runningStatsKernel[T float]() tensor.Kernel {
	return cpu.Parallel(dim0, one, func(a *tensor.Args, lo, hi int) {
		means, variances, sums := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[float64](a, 2)
		n, momentum := sums[len(sums)-1], a.F[0]
		for c := lo; c < hi; c++ {
			mean, variance := moments(sums, c)
			means[c] = T(float64((1-momentum)*float64(means[c])) + float64(momentum*mean))
			variances[c] = T(float64((1-momentum)*float64(variances[c])) + float64(momentum*variance*n/max(n-1, 1)))
		}
	})
}
