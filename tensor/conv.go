package tensor

func init() {
	define(OpConv2d,
		OpSpec{Name: "conv2d", Class: ClassMultilinear, Saves: 3, VJP: conv2dVJP, CPU: floats(convKernel(conv32), convKernel(conv64))})
	define(OpConv2dGradX, OpSpec{Name: "conv2d_grad_x", Const: true, CPU: floats(convGradXKernel(conv32), convGradXKernel(conv64))})
	define(OpConv2dGradW, OpSpec{Name: "conv2d_grad_w", Const: true, CPU: floats(convGradWKernel(conv32), convGradWKernel(conv64))})
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
func Conv2d(x, w, b Tensor, o Conv2dOptions) Tensor {
	t := tapeOf("conv2d", x)
	xh, wh := t.contiguous(t.arg(x)), t.contiguous(t.arg(w))
	var bh *header
	if !b.IsZero() {
		bh = t.contiguous(t.arg(b))
		t.sameDType("conv2d", xh, bh)
	}
	t.sameDType("conv2d", xh, wh)
	mustShape("conv2d", xh.rank == 4 && wh.rank == 4 && (bh == nil || bh.n == wh.dims[0]),
		"wants an input [batch, in, h, w], a weight [out, in/groups, kh, kw] and a bias [out]", xh, wh, bh)
	c := o.conv(xh, wh)
	out := t.newTensor(xh.dtype, c.N, c.Out, c.OutH, c.OutW)
	if out.n > 0 {
		t.conv(OpConv2d, c, out, xh, wh, bh).Launch()
	}
	if n := t.record3(OpConv2d, out, xh, wh, bh); n != nil {
		n.I = c.taps()
		n.F[0] = float64(c.Groups)
	}
	return out.tensor()
}

// Conv holds the sizes of a convolution.
type Conv struct {
	N, In, H, W, Out, Groups                                   int
	KH, KW, StrideH, StrideW, PadH, PadW, DilationH, DilationW int
	OutH, OutW                                                 int
}

// conv checks the options and the shapes.
func (o Conv2dOptions) conv(x, w *header) Conv {
	c := Conv{N: x.dims[0], In: x.dims[1], H: x.dims[2], W: x.dims[3], Out: w.dims[0], Groups: max(o.Groups, 1), KH: w.dims[2], KW: w.dims[3],
		StrideH: max(o.Stride[0], 1), StrideW: max(o.Stride[1], 1), PadH: o.Padding[0], PadW: o.Padding[1],
		DilationH: max(o.Dilation[0], 1), DilationW: max(o.Dilation[1], 1)}
	c.size()
	switch {
	case min(o.Stride[0], o.Stride[1], o.Padding[0], o.Padding[1], o.Dilation[0], o.Dilation[1], o.Groups) < 0:
		fail("conv2d", these(x, w), "no option may be negative: %+v", o)
	case c.In%c.Groups != 0 || c.Out%c.Groups != 0:
		fail("conv2d", these(x, w), "%d channels in and %d out do not divide into %d groups", c.In, c.Out, c.Groups)
	case c.In/c.Groups != w.dims[1]:
		fail("conv2d", these(x, w), "dimension 1 of the input is %d in %d groups, dimension 1 of %s is %d",
			c.In, c.Groups, w.called("the weight"), w.dims[1])
	case c.KH < 1 || c.KW < 1 || c.OutH < 1 || c.OutW < 1:
		fail("conv2d", these(x, w), "a kernel of %dx%d does not fit into %dx%d, with %+v", c.KH, c.KW, c.H, c.W, o)
	}
	return c
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
func ConvOf(a *Args) Conv {
	c := Conv{a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3], a.Dim[4], a.Dim[5], a.I[0], a.I[1], a.I[2], a.I[3], a.I[4], a.I[5], a.I[6], a.I[7], 0, 0}
	c.size()
	return c
}

// conv prepares a launch.
func (t *Tape) conv(op Op, c Conv, out *header, in ...*header) *Tape {
	a := t.Args(op, out.dtype)
	a.operands([]*header{out}, in)
	a.Dim = [MaxRank]int{c.N, c.In, c.H, c.W, c.Out, c.Groups}
	a.I = c.taps()
	return t
}

func conv2dVJP(t *Tape, n *Node, need uint8) {
	x, w, g := n.in[0], n.in[1], n.out.grad
	c := Conv{x.dims[0], x.dims[1], x.dims[2], x.dims[3], w.dims[0], int(n.F[0]), n.I[0], n.I[1], n.I[2], n.I[3], n.I[4], n.I[5], n.I[6],
		n.I[7], 0, 0}
	if need&1 != 0 {
		d := t.newLike(x)
		if x.n > 0 {
			t.conv(OpConv2dGradX, c, d, g, w).Launch()
		}
		t.addGrad(x, d)
	}
	if need&2 != 0 {
		dst, beta := t.gradTarget(w)
		if w.n > 0 {
			t.conv(OpConv2dGradW, c, dst, x, g)
			t.a.F[0] = beta
			t.Launch()
		}
		t.gradDone(w, dst)
	}
	if need&4 != 0 {
		sum := t.sumMask(g, 1|4|8)
		sum.setDims([]int{sum.n})
		t.addGrad(n.in[2], sum)
	}
}
