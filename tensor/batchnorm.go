package tensor

import (
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
)

func init() {
	define(OpChannelSums, OpSpec{Name: "channel_sums", Saves: 1, VJP: channelSumsVJP,
		CPU: floats(channelSumsKernel[float32](), channelSumsKernel[float64]())})
	define(OpChannelSumsGrad, OpSpec{Name: "channel_sums_grad", Const: true,
		CPU: floats(channelSumsGradKernel[float32](), channelSumsGradKernel[float64]())})
	define(OpBatchNorm,
		OpSpec{Name: "batch_norm", Saves: 7, VJP: batchNormVJP, CPU: floats(batchNormKernel[float32](), batchNormKernel[float64]())})
	define(OpBatchNormGrad,
		OpSpec{Name: "batch_norm_grad", Const: true, CPU: floats(batchNormGradKernel[float32](), batchNormGradKernel[float64]())})
	define(OpRunningStats,
		OpSpec{Name: "running_stats", Const: true, CPU: floats(runningStatsKernel[float32](), runningStatsKernel[float64]())})
}

// channels returns the shape of x [rows, channels, ..] as three dimensions.
func (t *Tape) channels(op string, x *header) [MaxRank]int {
	mustShape(op, x.rank >= 2, "wants rows of channels [rows, channels, ..]", x)
	return [MaxRank]int{x.dims[0], x.dims[1], product(x.dims[2:x.rank])}
}

// ChannelSums returns the sums from which BatchNorm gets the mean and the variance of each channel of x [rows, channels, ..], in Float64:
// the sum of its elements, the sum of their squares, and the number of elements of a channel, which makes 2·channels+1 numbers. They may be
// added over ranks that hold other rows of the batch.
func ChannelSums(x Tensor) Tensor {
	t := tapeOf("channel_sums", x)
	in := t.contiguous(t.arg(x))
	dims := t.channels("channel_sums", in)
	out := t.newTensor(Float64, 2*dims[1]+1)
	a := t.Args(OpChannelSums, in.dtype)
	a.out(out).in(in)
	a.Dim = dims
	t.Launch()
	t.rec(OpChannelSums, out, in)
	out.ty, out.at = out.ty.With(out.ty.On(Varying), Partial), place{}
	return out.tensor()
}

func channelSumsVJP(t *Tape, n *Node, _ uint8) {
	x := n.in[0]
	d := t.newLike(x)
	if x.n > 0 {
		a := t.Args(OpChannelSumsGrad, x.dtype)
		a.out(d).in(x).in(n.out.grad)
		a.Dim = t.channels("channel_sums", x)
		t.Launch()
	}
	t.addGrad(x, d)
}

// BatchNorm normalizes the channels of x [rows, channels, ..] to mean 0 and variance 1, then applies weight w and bias b [channels], which
// may be none (Ioffe and Szegedy 2015). sums are the [ChannelSums] of all rows. If they are those of this rank's rows, and other ranks hold
// other rows, it panics with a *Failure.
func BatchNorm(x, sums, w, b Tensor, eps float64) Tensor {
	t := tapeOf("batch_norm", x)
	in, s := t.contiguous(t.arg(x)), t.arg(sums)
	dims := t.channels("batch_norm", in)
	mustShape("batch_norm", s.dtype == Float64 && s.n == 2*dims[1]+1,
		"wants the sums of ChannelSums, two of each channel and a count, in float64", in, s)
	vector := func(v Tensor) *header {
		if v.IsZero() {
			return nil
		}
		h := t.contiguous(t.arg(v))
		t.sameDType("batch_norm", in, h)
		mustShape("batch_norm", h.n == dims[1], "wants a weight and a bias [channels]", in, h)
		return h
	}
	wh, bh := vector(w), vector(b)
	if bad := s.ty.On(Partial); bad != 0 && t.recording() {
		clash("batch_norm", []*header{in, s}, bad, ClashStatistics, Partial, Varying)
	}
	t.noteNumber("BatchNorm", in, 0, eps)
	out := t.newLike(in)
	if out.n > 0 {
		a := t.Args(OpBatchNorm, in.dtype)
		a.operands([]*header{out}, []*header{in, s, wh, bh})
		a.Dim, a.F[0] = dims, eps
		t.Launch()
	}
	if n := t.rec(OpBatchNorm, out, in, s, wh, bh); n != nil {
		n.F[0] = eps
	}
	return out.tensor()
}

func batchNormVJP(t *Tape, n *Node, need uint8) {
	x, s, w := n.in[0], n.in[1], n.in[2]
	dims := t.channels("batch_norm", x)
	dx, ds := t.newLike(x), t.newTensor(Float64, s.n)
	var dw, db *header
	if need&4 != 0 {
		dw = t.newLike(w)
	}
	if need&8 != 0 {
		db = t.newLike(n.in[3])
	}
	a := t.Args(OpBatchNormGrad, x.dtype)
	a.operands([]*header{dx, ds, dw, db}, []*header{x, n.out.grad, s, w})
	a.Dim, a.F[0] = dims, n.F[0]
	t.Launch()
	for i, d := range []*header{dx, ds, dw, db} {
		switch {
		case d == nil:
		case need&(1<<i) != 0:
			t.addGrad(n.in[i], d)
		default:
			t.release(d)
		}
	}
}

// RunningStats updates the running means and variances [channels] of a model from sums (see [ChannelSums]): each becomes (1−momentum)·old +
// momentum·new. The variances are the unbiased ones, as in PyTorch.
func RunningStats(means, variances *Buffer, sums Tensor, momentum float64) {
	t := tapeOf("running_stats", sums)
	s, m, v := t.arg(sums), means.Value.hdr(), variances.Value.hdr()
	t.sameDType("running_stats", m, v)
	mustShape("running_stats", s.dtype == Float64 && m.n == v.n && s.n == 2*m.n+1,
		"wants means and variances [channels], and the sums of ChannelSums", m, v, s)
	a := t.Args(OpRunningStats, m.dtype)
	a.out(m).out(v).in(s)
	a.Dim[0], a.F[0] = m.n, momentum
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
func channelCost(a *Args) int { return a.Dim[0] * a.Dim[2] }

// eachRun calls f for each run of adjacent elements of channel c, in the order of the rows.
func eachRun(a *Args, c int, f func(lo, hi int)) {
	for r := range a.Dim[0] {
		at := (r*a.Dim[1] + c) * a.Dim[2]
		f(at, at+a.Dim[2])
	}
}

func channelSumsKernel[T kernel.Float]() Kernel {
	sum := Parallel(dim1, channelCost, func(a *Args, lo, hi int) {
		sums, x := slice[float64](a, 0), slice[T](a, 1)
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
	return func(q Queue, a *Args) {
		sum(q, a)
		slice[float64](a, 0)[2*a.Dim[1]] = float64(a.Dim[0] * a.Dim[2])
	}
}

func channelSumsGradKernel[T kernel.Float]() Kernel {
	return Parallel(dim1, channelCost, func(a *Args, lo, hi int) {
		d, x, g := slice[T](a, 0), slice[T](a, 1), slice[float64](a, 2)
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
func scaleOf[T kernel.Float](w []T, c int) float64 {
	if w == nil {
		return 1
	}
	return float64(w[c])
}

func batchNormKernel[T kernel.Float]() Kernel {
	return Parallel(dim1, channelCost, func(a *Args, lo, hi int) {
		y, x, sums, w, b := slice[T](a, 0), slice[T](a, 1), slice[float64](a, 2), slice[T](a, 3), slice[T](a, 4)
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
func batchNormGradKernel[T kernel.Float]() Kernel {
	grads := Parallel(dim1, channelCost, func(a *Args, lo, hi int) {
		dx, ds, dw, db := slice[T](a, 0), slice[float64](a, 1), slice[T](a, 2), slice[T](a, 3)
		x, g, sums, w := slice[T](a, 4), slice[T](a, 5), slice[float64](a, 6), slice[T](a, 7)
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
	return func(q Queue, a *Args) {
		grads(q, a)
		ds := slice[float64](a, 1)
		ds[len(ds)-1] = 0
	}
}

func runningStatsKernel[T kernel.Float]() Kernel {
	return Parallel(dim0, one, func(a *Args, lo, hi int) {
		means, variances, sums := slice[T](a, 0), slice[T](a, 1), slice[float64](a, 2)
		n, momentum := sums[len(sums)-1], a.F[0]
		for c := lo; c < hi; c++ {
			mean, variance := moments(sums, c)
			means[c] = T(float64((1-momentum)*float64(means[c])) + float64(momentum*mean))
			variances[c] = T(float64((1-momentum)*float64(variances[c])) + float64(momentum*variance*n/max(n-1, 1)))
		}
	})
}
