package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// The operations of MaxPool2d and AvgPool2d, and of their gradients.
var OpMaxPool2d, OpMaxPool2dGrad, OpAvgPool2d, OpAvgPool2dGrad tensor.Op

func init() {
	OpMaxPool2d = register(tensor.OpSpec{Name: "max_pool2d", Rows: tensor.RowsFirst, VJP: maxPool2dVJP},
		maxPoolKernel[float32](), maxPoolKernel[float64]())
	OpMaxPool2dGrad = register(tensor.OpSpec{Name: "max_pool2d_grad", Const: true}, maxPoolGradKernel[float32](), maxPoolGradKernel[float64]())
	OpAvgPool2d = register(tensor.OpSpec{Name: "avg_pool2d", Class: typing.Linear, Rows: tensor.RowsFirst, VJP: avgPool2dVJP},
		avgPoolKernel[float32](), avgPoolKernel[float64]())
	OpAvgPool2dGrad = register(tensor.OpSpec{Name: "avg_pool2d_grad", Const: true}, avgPoolGradKernel[float32](), avgPoolGradKernel[float64]())
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
func PoolOf(a *tensor.Args) Pool {
	return Pool{a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3], a.Dim[4], a.I[0], a.I[1], a.I[2], a.I[3], a.I[4], a.I[5], a.I[0] * a.I[1]}
}

// pool checks the options for x. It returns the sizes, and the output with memory.
func (o Pool2dOptions) pool(op tensor.Op, t *tensor.Tape, x tensor.Tensor) (p Pool, out tensor.Tensor) {
	for i := range o.Stride {
		if o.Stride[i] == 0 {
			o.Stride[i] = o.Kernel[i]
		}
	}
	d, rank := dimsOf(x)
	ok := rank >= 3 && min(o.Kernel[0], o.Kernel[1], o.Stride[0], o.Stride[1]) > 0 && min(o.Padding[0], o.Padding[1]) >= 0 &&
		2*o.Padding[0] <= o.Kernel[0] && 2*o.Padding[1] <= o.Kernel[1]
	if ok {
		h, w := d[rank-2], d[rank-1]
		p = Pool{H: h, W: w, KH: o.Kernel[0], KW: o.Kernel[1], StrideH: o.Stride[0], StrideW: o.Stride[1], PadH: o.Padding[0], PadW: o.Padding[1]}
		p.OutH, p.OutW = outputs(h, p.PadH, p.KH, p.StrideH), outputs(w, p.PadW, p.KW, p.StrideW)
		p.Planes = product(d[:rank-2])
	}
	if p.OutH < 1 || p.OutW < 1 {
		op.Fail([]tensor.Tensor{x}, "wants [.., h, w] that the window fits into, and padding of at most half of it: %+v", o)
	}
	d[rank-2], d[rank-1] = p.OutH, p.OutW
	return p, t.New(x.DType(), d[:rank]...)
}

func (p *Pool) taps() [8]int { return [8]int{p.KH, p.KW, p.StrideH, p.StrideW, p.PadH, p.PadW} }

// args begins a launch that writes out.
func (p *Pool) args(t *tensor.Tape, op tensor.Op, out tensor.Tensor) *tensor.Args {
	a := t.Args(op, out.DType()).Out(out)
	a.Dim = [tensor.MaxNDim]int{p.Planes, p.H, p.W, p.OutH, p.OutW}
	a.I = p.taps()
	return a
}

// poolOf returns the sizes again, for the gradient.
func poolOf(n *tensor.Node) Pool {
	x, y, i := n.In(0), n.Out(), n.I
	d, rank := dimsOf(x)
	return Pool{Planes: product(d[:rank-2]), H: d[rank-2], W: d[rank-1], OutH: y.Dim(-2), OutW: y.Dim(-1),
		KH: i[0], KW: i[1], StrideH: i[2], StrideW: i[3], PadH: i[4], PadW: i[5]}
}

// MaxPool2d returns the largest pixel of each window of x [.., height, width], as torch.nn.functional.max_pool2d. NaN is larger than all
// numbers. Of equal pixels, the first one gets the gradient.
func MaxPool2d(x tensor.Tensor, o Pool2dOptions) tensor.Tensor {
	t := OpMaxPool2d.Tape(x)
	x = t.Packed(x)
	p, out := o.pool(OpMaxPool2d, t, x)
	places := t.New(tensor.Int32, out.Len())
	if out.Len() > 0 {
		p.args(t, OpMaxPool2d, out).Out(places).In(x)
		t.Launch()
	}
	n := t.Record(OpMaxPool2d, out, x)
	if n != nil {
		n.I = p.taps()
	}
	t.Save(n, places)
	return out
}

func maxPool2dVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	d := t.NewLike(n.In(0))
	if d.Len() > 0 {
		p := poolOf(n)
		p.args(t, OpMaxPool2dGrad, d).In(n.Grad()).In(n.Saved(0))
		t.Launch()
	}
	t.AddGrad(n, 0, d)
}

// AvgPool2d returns the mean of each window of x [.., height, width], as torch.nn.functional.avg_pool2d: padding counts as zeros.
func AvgPool2d(x tensor.Tensor, o Pool2dOptions) tensor.Tensor {
	t := OpAvgPool2d.Tape(x)
	x = t.Packed(x)
	p, out := o.pool(OpAvgPool2d, t, x)
	if out.Len() > 0 {
		p.args(t, OpAvgPool2d, out).In(x)
		t.Launch()
	}
	if n := t.Record(OpAvgPool2d, out, x); n != nil {
		n.I = p.taps()
	}
	return out
}

func avgPool2dVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	d := t.NewLike(n.In(0))
	if d.Len() > 0 {
		p := poolOf(n)
		p.args(t, OpAvgPool2dGrad, d).In(n.Grad())
		t.Launch()
	}
	t.AddGrad(n, 0, d)
}

// poolPlanes makes a kernel that calls f for each window: with the number of its plane, the number of its output pixel, and its rows y0 to
// y1 and columns x0 to x1 inside the input.
func poolPlanes(f func(a *tensor.Args, p *Pool, plane, out, y0, y1, x0, x1 int)) tensor.Kernel {
	cost := func(a *tensor.Args) int { return a.Dim[3] * a.Dim[4] * a.I[0] * a.I[1] }
	return cpu.Parallel(dim0, cost, func(a *tensor.Args, lo, hi int) {
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

func maxPoolKernel[T float]() tensor.Kernel {
	return poolPlanes(func(a *tensor.Args, p *Pool, plane, out, y0, y1, x0, x1 int) {
		in := tensor.Operand[T](a, 2)[plane*p.H*p.W:][:p.H*p.W]
		at := y0*p.W + x0
		best := in[at]
		for y := y0; y < y1; y++ {
			for k, v := range in[y*p.W+x0 : y*p.W+x1] {
				if v > best || v != v && best == best {
					best, at = v, y*p.W+x0+k
				}
			}
		}
		tensor.Operand[T](a, 0)[out], tensor.Operand[int32](a, 1)[out] = best, int32(at)
	})
}

func maxPoolGradKernel[T float]() tensor.Kernel {
	cost := func(a *tensor.Args) int { return a.Dim[1] * a.Dim[2] }
	return cpu.Parallel(dim0, cost, func(a *tensor.Args, lo, hi int) {
		p := PoolOf(a)
		n := p.OutH * p.OutW
		for plane := lo; plane < hi; plane++ {
			d := tensor.Operand[T](a, 0)[plane*p.H*p.W:][:p.H*p.W]
			clear(d)
			g, places := tensor.Operand[T](a, 1)[plane*n:][:n], tensor.Operand[int32](a, 2)[plane*n:][:n]
			for i, v := range g {
				d[places[i]] += v
			}
		}
	})
}

func avgPoolKernel[T float]() tensor.Kernel {
	return poolPlanes(func(a *tensor.Args, p *Pool, plane, out, y0, y1, x0, x1 int) {
		in, sum := tensor.Operand[T](a, 1)[plane*p.H*p.W:][:p.H*p.W], T(0)
		for y := y0; y < y1; y++ {
			for _, v := range in[y*p.W+x0 : y*p.W+x1] {
				sum += v
			}
		}
		tensor.Operand[T](a, 0)[out] = sum / T(p.area)
	})
}

func avgPoolGradKernel[T float]() tensor.Kernel {
	add := poolPlanes(func(a *tensor.Args, p *Pool, plane, out, y0, y1, x0, x1 int) {
		d, v := tensor.Operand[T](a, 0)[plane*p.H*p.W:][:p.H*p.W], tensor.Operand[T](a, 1)[out]/T(p.area)
		for y := y0; y < y1; y++ {
			line := d[y*p.W+x0 : y*p.W+x1]
			for k := range line {
				line[k] += v
			}
		}
	})
	return func(q tensor.Queue, a *tensor.Args) {
		clear(tensor.Operand[T](a, 0))
		add(q, a)
	}
}
