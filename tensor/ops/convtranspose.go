package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// OpConvTranspose2d is the operation of ConvTranspose2d. Its kernels are those of OpConv2dGradX.
var OpConvTranspose2d tensor.Op

func init() {
	OpConvTranspose2d = register(tensor.OpSpec{Name: "conv_transpose2d", Class: typing.Multilinear, Rows: tensor.RowsFirst, Saves: 3,
		VJP: convTranspose2dVJP}, convGradXKernel[float32](), convGradXKernel[float64]())
}

// ConvTranspose2dOptions are the options of a transposed convolution: those of the convolution that it transposes, and of several sizes
// that this convolution makes equal, which one is meant.
type ConvTranspose2dOptions struct {
	Conv2dOptions
	OutputPadding [2]int // rows and columns more at the end, fewer than Stride
}

// ConvTranspose2d is the adjoint of Conv2d, its gradient for the input: it makes images [batch, out, ..] of x [batch, in, height, width]
// with kernels w [in, out/groups, rows, columns], plus b [out] (or none), as torch.nn.functional.conv_transpose2d. The new height is
// (height−1)·stride − 2·padding + dilation·(rows−1) + 1 + output padding.
func ConvTranspose2d(x, w, b tensor.Tensor, o ConvTranspose2dOptions) tensor.Tensor {
	t := OpConvTranspose2d.Tape(x)
	x, w = t.Packed(x), t.Packed(w)
	if !b.IsZero() {
		b = t.Packed(b)
		OpConvTranspose2d.SameDType(x, b)
	}
	OpConvTranspose2d.SameDType(x, w)
	if x.NDim() != 4 || w.NDim() != 4 || !b.IsZero() && b.Len() != w.Dim(1)*max(o.Groups, 1) {
		OpConvTranspose2d.Fail([]tensor.Tensor{x, w, b}, "wants an input [batch, in, h, w], a weight [in, out/groups, kh, kw] and a bias [out]")
	}
	c := o.transposed(x, w)
	out := t.New(x.DType(), c.N, c.In, c.H, c.W)
	if out.Len() > 0 {
		maybeIn(c.args(t, OpConvTranspose2d, out).In(x).In(w), b)
		t.Launch()
	}
	if n := record(t, OpConvTranspose2d, out, x, w, b); n != nil {
		n.I = c.taps()
		n.F[0] = float64(c.Groups)
	}
	return out
}

// transposed checks the options and the shapes, and returns the convolution from the output to x.
func (o ConvTranspose2dOptions) transposed(x, w tensor.Tensor) Conv {
	c := Conv{N: x.Dim(0), Out: x.Dim(1), Groups: max(o.Groups, 1), KH: w.Dim(2), KW: w.Dim(3), In: w.Dim(1) * max(o.Groups, 1),
		StrideH: max(o.Stride[0], 1), StrideW: max(o.Stride[1], 1), PadH: o.Padding[0], PadW: o.Padding[1],
		DilationH: max(o.Dilation[0], 1), DilationW: max(o.Dilation[1], 1)}
	c.H = (x.Dim(2)-1)*c.StrideH - 2*c.PadH + c.DilationH*(c.KH-1) + 1 + o.OutputPadding[0]
	c.W = (x.Dim(3)-1)*c.StrideW - 2*c.PadW + c.DilationW*(c.KW-1) + 1 + o.OutputPadding[1]
	c.size()
	fail := func(format string, a ...any) { OpConvTranspose2d.Fail([]tensor.Tensor{x, w}, format, a...) }
	switch {
	case o.negative() || min(o.OutputPadding[0], o.OutputPadding[1]) < 0:
		fail("no option may be negative: %+v", o)
	case o.OutputPadding[0] >= c.StrideH || o.OutputPadding[1] >= c.StrideW:
		fail("OutputPadding is not less than Stride: %+v", o)
	case c.Out%c.Groups != 0:
		fail("%d channels in do not divide into %d groups", c.Out, c.Groups)
	case c.Out != w.Dim(0):
		fail("dimension 1 of the input is %d, dimension 0 of %s is %d", c.Out, w.NameOr("the weight"), w.Dim(0))
	case c.KH < 1 || c.KW < 1 || c.H < 1 || c.W < 1 || c.OutH != x.Dim(2) || c.OutW != x.Dim(3):
		fail("nothing is left of the output, %dx%d, with %+v", c.H, c.W, o)
	}
	return c
}

func convTranspose2dVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, w, g := n.In(0), n.In(1), n.Grad()
	c := Conv{g.Dim(0), g.Dim(1), g.Dim(2), g.Dim(3), x.Dim(1), int(n.F[0]), n.I[0], n.I[1], n.I[2], n.I[3], n.I[4], n.I[5], n.I[6],
		n.I[7], 0, 0}
	if need&1 != 0 {
		d := t.NewLike(x)
		if x.Len() > 0 {
			c.args(t, OpConv2d, d).In(g).In(w).None()
			t.Launch()
		}
		t.AddGrad(n, 0, d)
	}
	if need&2 != 0 {
		dst, beta := t.GradTarget(n, 1)
		if w.Len() > 0 {
			a := c.args(t, OpConv2dGradW, dst).In(g).In(x)
			a.F[0] = beta
			t.Launch()
		}
		t.GradDone(n, 1, dst)
	}
	if need&4 != 0 {
		t.AddGrad(n, 2, g.Sum(0, 2, 3))
	}
}
