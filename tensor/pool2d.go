package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

func init() {
	define(OpMaxPool2d, OpSpec{Name: "max_pool2d", VJP: maxPool2dVJP, CPU: floats(maxPoolKernel[float32](), maxPoolKernel[float64]())})
	define(OpMaxPool2dGrad,
		OpSpec{Name: "max_pool2d_grad", Const: true, CPU: floats(maxPoolGradKernel[float32](), maxPoolGradKernel[float64]())})
	define(OpAvgPool2d, OpSpec{Name: "avg_pool2d", Class: ClassLinear, VJP: avgPool2dVJP,
		CPU: floats(avgPoolKernel[float32](), avgPoolKernel[float64]())})
	define(OpAvgPool2dGrad, OpSpec{Name: "avg_pool2d_grad", Const: true,
		CPU: floats(avgPoolGradKernel[float32](), avgPoolGradKernel[float64]())})
}

// Pool2dOptions are the options of a pooling. The first of two numbers is for rows, the second for columns.
type Pool2dOptions struct {
	Kernel  [2]int // pixels
	Stride  [2]int // from one output to the next; 0: Kernel
	Padding [2]int // pixels before the first and after the last one, at most half of Kernel
}

// Pool holds the sizes of a pooling. Planes is the product of all dimensions but the last two.
type Pool struct {
	Planes, H, W, OutH, OutW                   int
	KH, KW, StrideH, StrideW, PadH, PadW, area int
}

// PoolOf returns the sizes of the pooling, for a kernel.
func PoolOf(a *Args) Pool {
	return Pool{a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3], a.Dim[4], a.I[0], a.I[1], a.I[2], a.I[3], a.I[4], a.I[5], a.I[0] * a.I[1]}
}

// pool checks the options. It returns the sizes, and the output with memory.
func (o Pool2dOptions) pool(op string, t *Tape, x *header) (p Pool, out *header) {
	for i := range o.Stride {
		if o.Stride[i] == 0 {
			o.Stride[i] = o.Kernel[i]
		}
	}
	ok := x.rank >= 3 && min(o.Kernel[0], o.Kernel[1], o.Stride[0], o.Stride[1]) > 0 && min(o.Padding[0], o.Padding[1]) >= 0 &&
		2*o.Padding[0] <= o.Kernel[0] && 2*o.Padding[1] <= o.Kernel[1]
	if ok {
		h, w := x.dims[x.rank-2], x.dims[x.rank-1]
		p = Pool{H: h, W: w, KH: o.Kernel[0], KW: o.Kernel[1], StrideH: o.Stride[0], StrideW: o.Stride[1], PadH: o.Padding[0], PadW: o.Padding[1]}
		p.OutH, p.OutW = outputs(h, p.PadH, p.KH, p.StrideH), outputs(w, p.PadW, p.KW, p.StrideW)
		p.Planes = product(x.dims[:x.rank-2])
	}
	if p.OutH < 1 || p.OutW < 1 {
		fail(op, these(x), "wants [.., h, w] that the window fits into, and padding of at most half of it: %+v", o)
	}
	out = t.newHeader(x.dtype, x.dims[:x.rank]...)
	out.dims[out.rank-2], out.dims[out.rank-1] = p.OutH, p.OutW
	out.setDims(out.dims[:out.rank])
	t.alloc(out)
	return p, out
}

func (p *Pool) taps() [8]int { return [8]int{p.KH, p.KW, p.StrideH, p.StrideW, p.PadH, p.PadW} }

// pooling launches op, unless the output is empty.
func (t *Tape) pooling(op Op, p Pool, outs, ins []*header) {
	if outs[0].n == 0 {
		return
	}
	a := t.Args(op, outs[0].dtype)
	a.operands(outs, ins)
	a.Dim = [MaxRank]int{p.Planes, p.H, p.W, p.OutH, p.OutW}
	a.I = p.taps()
	t.Launch()
}

// poolOf returns the sizes again, for the gradient.
func (n *Node) poolOf() Pool {
	x, y, i := n.in[0], n.out, n.I
	return Pool{Planes: product(x.dims[:x.rank-2]), H: x.dims[x.rank-2], W: x.dims[x.rank-1], OutH: y.dims[y.rank-2], OutW: y.dims[y.rank-1],
		KH: i[0], KW: i[1], StrideH: i[2], StrideW: i[3], PadH: i[4], PadW: i[5]}
}

// MaxPool2d returns the largest pixel of each window of x [.., height, width], as torch.nn.functional.max_pool2d. NaN is larger than all
// numbers. Of equal pixels, the first one gets the gradient.
func (x Tensor) MaxPool2d(o Pool2dOptions) Tensor {
	t := tapeOf("max_pool2d", x)
	in := t.contiguous(t.arg(x))
	p, out := o.pool("max_pool2d", t, in)
	places := t.newTensor(Int32, out.n)
	t.pooling(OpMaxPool2d, p, []*header{out, places}, []*header{in})
	n := t.rec(OpMaxPool2d, out, in)
	if n != nil {
		n.I = p.taps()
	}
	t.keepStats(n, places)
	return out.tensor()
}

func maxPool2dVJP(t *Tape, n *Node, _ uint8) {
	d := t.newLike(n.in[0])
	t.pooling(OpMaxPool2dGrad, n.poolOf(), []*header{d}, []*header{n.out.grad, n.aux[0]})
	t.addGrad(n.in[0], d)
}

// AvgPool2d returns the mean of each window of x [.., height, width], as torch.nn.functional.avg_pool2d: padding counts as zeros.
func (x Tensor) AvgPool2d(o Pool2dOptions) Tensor {
	t := tapeOf("avg_pool2d", x)
	in := t.contiguous(t.arg(x))
	p, out := o.pool("avg_pool2d", t, in)
	t.pooling(OpAvgPool2d, p, []*header{out}, []*header{in})
	if n := t.rec(OpAvgPool2d, out, in); n != nil {
		n.I = p.taps()
	}
	return out.tensor()
}

func avgPool2dVJP(t *Tape, n *Node, _ uint8) {
	d := t.newLike(n.in[0])
	t.pooling(OpAvgPool2dGrad, n.poolOf(), []*header{d}, []*header{n.out.grad})
	t.addGrad(n.in[0], d)
}

// poolPlanes makes a kernel that calls f for each window: with the number of its plane, the number of its output pixel, and its rows y0 to
// y1 and columns x0 to x1 inside the input.
func poolPlanes(f func(a *Args, p *Pool, plane, out, y0, y1, x0, x1 int)) Kernel {
	cost := func(a *Args) int { return a.Dim[3] * a.Dim[4] * a.I[0] * a.I[1] }
	return Parallel(dim0, cost, func(a *Args, lo, hi int) {
		p := PoolOf(a)
		for plane := lo; plane < hi; plane++ {
			out := plane * p.OutH * p.OutW
			for i := range p.OutH {
				y := i*p.StrideH - p.PadH
				for j := range p.OutW {
					x := j*p.StrideW - p.PadW
					f(a, &p, plane, out, max(y, 0), min(y+p.KH, p.H), max(x, 0), min(x+p.KW, p.W))
					out++
				}
			}
		}
	})
}

func maxPoolKernel[T kernel.Float]() Kernel {
	return poolPlanes(func(a *Args, p *Pool, plane, out, y0, y1, x0, x1 int) {
		in := slice[T](a, 2)[plane*p.H*p.W:][:p.H*p.W]
		at := y0*p.W + x0
		best := in[at]
		for y := y0; y < y1; y++ {
			for k, v := range in[y*p.W+x0 : y*p.W+x1] {
				if v > best || v != v && best == best {
					best, at = v, y*p.W+x0+k
				}
			}
		}
		slice[T](a, 0)[out], slice[int32](a, 1)[out] = best, int32(at)
	})
}

func maxPoolGradKernel[T kernel.Float]() Kernel {
	cost := func(a *Args) int { return a.Dim[1] * a.Dim[2] }
	return Parallel(dim0, cost, func(a *Args, lo, hi int) {
		p := PoolOf(a)
		n := p.OutH * p.OutW
		for plane := lo; plane < hi; plane++ {
			d := slice[T](a, 0)[plane*p.H*p.W:][:p.H*p.W]
			clear(d)
			g, places := slice[T](a, 1)[plane*n:][:n], slice[int32](a, 2)[plane*n:][:n]
			for i, v := range g {
				d[places[i]] += v
			}
		}
	})
}

func avgPoolKernel[T kernel.Float]() Kernel {
	return poolPlanes(func(a *Args, p *Pool, plane, out, y0, y1, x0, x1 int) {
		in, sum := slice[T](a, 1)[plane*p.H*p.W:][:p.H*p.W], T(0)
		for y := y0; y < y1; y++ {
			for _, v := range in[y*p.W+x0 : y*p.W+x1] {
				sum += v
			}
		}
		slice[T](a, 0)[out] = sum / T(p.area)
	})
}

func avgPoolGradKernel[T kernel.Float]() Kernel {
	add := poolPlanes(func(a *Args, p *Pool, plane, out, y0, y1, x0, x1 int) {
		d, v := slice[T](a, 0)[plane*p.H*p.W:][:p.H*p.W], slice[T](a, 1)[out]/T(p.area)
		for y := y0; y < y1; y++ {
			line := d[y*p.W+x0 : y*p.W+x1]
			for k := range line {
				line[k] += v
			}
		}
	})
	return func(q Queue, a *Args) {
		clear(slice[T](a, 0))
		add(q, a)
	}
}
