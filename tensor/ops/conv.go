package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// The operations of Conv2d and of its gradients.
var OpConv2d, OpConv2dGradX, OpConv2dGradW tensor.Op

func init() {
	OpConv2d = register(tensor.OpSpec{Name: "conv2d", Class: typing.Multilinear, Rows: tensor.RowsFirst, Saves: 3, VJP: conv2dVJP},
		convKernel[float32](), convKernel[float64]())
	OpConv2dGradX = register(tensor.OpSpec{Name: "conv2d_grad_x", Const: true}, convGradXKernel[float32](), convGradXKernel[float64]())
	OpConv2dGradW = register(tensor.OpSpec{Name: "conv2d_grad_w", Const: true}, convGradWKernel[float32](), convGradWKernel[float64]())
}

// Conv2dOptions are the options of a convolution. The first of two numbers is for rows, the second for columns.
type Conv2dOptions struct {
	Stride   [2]int // 0: 1
	Padding  [2]int // zeros before the first and after the last pixel
	Dilation [2]int // distance between two taps of the kernel; 0: 1
	Groups   int    // groups of channels; 0: 1
}

// Conv2d is the cross-correlation of images x [batch, in, height, width] with kernels w [out, in/groups, rows, columns], plus b [out] (or
// none), as torch.nn.functional.conv2d.
func Conv2d(x, w, b tensor.Tensor, o Conv2dOptions) tensor.Tensor {
	t := OpConv2d.Tape(x)
	x, w = t.Packed(x), t.Packed(w)
	if !b.IsZero() {
		b = t.Packed(b)
		OpConv2d.SameDType(x, b)
	}
	OpConv2d.SameDType(x, w)
	if x.NDim() != 4 || w.NDim() != 4 || !b.IsZero() && b.Len() != w.Dim(0) {
		OpConv2d.Fail([]tensor.Tensor{x, w, b}, "wants an input [batch, in, h, w], a weight [out, in/groups, kh, kw] and a bias [out]")
	}
	c := o.conv(x, w)
	out := t.New(x.DType(), c.N, c.Out, c.OutH, c.OutW)
	if out.Len() > 0 {
		maybeIn(c.args(t, OpConv2d, out).In(x).In(w), b)
		t.Launch()
	}
	if n := record(t, OpConv2d, out, x, w, b); n != nil {
		n.I = c.taps()
		n.F[0] = float64(c.Groups)
	}
	return out
}

// record is Record with an optional third input.
func record(t *tensor.Tape, op tensor.Op, out, x, w, b tensor.Tensor) *tensor.Node {
	if b.IsZero() {
		return t.Record(op, out, x, w)
	}
	return t.Record(op, out, x, w, b)
}

// Conv holds the sizes of a convolution.
type Conv struct {
	N, In, H, W, Out, Groups                                   int
	KH, KW, StrideH, StrideW, PadH, PadW, DilationH, DilationW int
	OutH, OutW                                                 int
}

// conv checks the options and the shapes.
func (o Conv2dOptions) conv(x, w tensor.Tensor) Conv {
	c := Conv{N: x.Dim(0), In: x.Dim(1), H: x.Dim(2), W: x.Dim(3), Out: w.Dim(0), Groups: max(o.Groups, 1), KH: w.Dim(2), KW: w.Dim(3),
		StrideH: max(o.Stride[0], 1), StrideW: max(o.Stride[1], 1), PadH: o.Padding[0], PadW: o.Padding[1],
		DilationH: max(o.Dilation[0], 1), DilationW: max(o.Dilation[1], 1)}
	c.size()
	fail := func(format string, a ...any) { OpConv2d.Fail([]tensor.Tensor{x, w}, format, a...) }
	switch {
	case o.negative():
		fail("no option may be negative: %+v", o)
	case c.In%c.Groups != 0 || c.Out%c.Groups != 0:
		fail("%d channels in and %d out do not divide into %d groups", c.In, c.Out, c.Groups)
	case c.In/c.Groups != w.Dim(1):
		fail("dimension 1 of the input is %d in %d groups, dimension 1 of %s is %d", c.In, c.Groups, w.NameOr("the weight"), w.Dim(1))
	case c.KH < 1 || c.KW < 1 || c.OutH < 1 || c.OutW < 1:
		fail("a kernel of %dx%d does not fit into %dx%d, with %+v", c.KH, c.KW, c.H, c.W, o)
	}
	return c
}

func (o *Conv2dOptions) negative() bool {
	return min(o.Stride[0], o.Stride[1], o.Padding[0], o.Padding[1], o.Dilation[0], o.Dilation[1], o.Groups) < 0
}

// outputs is the number of positions of a window in n pixels.
func outputs(n, pad, span, stride int) int {
	if room := n + 2*pad - span; room >= 0 {
		return room/stride + 1
	}
	return 0
}

func (c *Conv) size() {
	c.OutH = outputs(c.H, c.PadH, c.DilationH*(c.KH-1)+1, c.StrideH)
	c.OutW = outputs(c.W, c.PadW, c.DilationW*(c.KW-1)+1, c.StrideW)
}

func (c *Conv) taps() [8]int {
	return [8]int{c.KH, c.KW, c.StrideH, c.StrideW, c.PadH, c.PadW, c.DilationH, c.DilationW}
}

// ConvOf returns the sizes of the convolution, for a kernel.
func ConvOf(a *tensor.Args) Conv {
	c := Conv{a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3], a.Dim[4], a.Dim[5], a.I[0], a.I[1], a.I[2], a.I[3], a.I[4], a.I[5], a.I[6], a.I[7], 0, 0}
	c.size()
	return c
}

// args begins a launch that writes out.
func (c *Conv) args(t *tensor.Tape, op tensor.Op, out tensor.Tensor) *tensor.Args {
	a := t.Args(op, out.DType()).Out(out)
	a.Dim = [tensor.MaxNDim]int{c.N, c.In, c.H, c.W, c.Out, c.Groups}
	a.I = c.taps()
	return a
}

func conv2dVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, w, g := n.In(0), n.In(1), n.Grad()
	c := Conv{x.Dim(0), x.Dim(1), x.Dim(2), x.Dim(3), w.Dim(0), int(n.F[0]), n.I[0], n.I[1], n.I[2], n.I[3], n.I[4], n.I[5], n.I[6],
		n.I[7], 0, 0}
	if need&1 != 0 {
		d := t.NewLike(x)
		if x.Len() > 0 {
			c.args(t, OpConv2dGradX, d).In(g).In(w).None()
			t.Launch()
		}
		t.AddGrad(n, 0, d)
	}
	if need&2 != 0 {
		dst, beta := t.GradTarget(n, 1)
		if w.Len() > 0 {
			a := c.args(t, OpConv2dGradW, dst).In(x).In(g)
			a.F[0] = beta
			t.Launch()
		}
		t.GradDone(n, 1, dst)
	}
	if need&4 != 0 {
		t.AddGrad(n, 2, g.Sum(0, 2, 3))
	}
}
