package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The operations of MSE and BCEWithLogits, and of their gradients.
var OpMSE, OpMSEGrad, OpBCE, OpBCEGrad tensor.Op

func init() {
	loss := func(name string, vjp tensor.VJP) tensor.OpSpec {
		return tensor.OpSpec{Name: name, Saves: 3, VJP: vjp, Rows: tensor.RowsByCaller}
	}
	OpMSE = register(loss("mse", mseVJP), lossKernel(kernel.MSE[float32]), lossKernel(kernel.MSE[float64]))
	OpMSEGrad = register(tensor.OpSpec{Name: "mse_grad", Const: true},
		lossGradKernel(kernel.MSEGrad[float32]), lossGradKernel(kernel.MSEGrad[float64]))
	OpBCE = register(loss("bce_with_logits", bceVJP),
		lossKernel(kernel.BCEWithLogits[float32]), lossKernel(kernel.BCEWithLogits[float64]))
	OpBCEGrad = register(tensor.OpSpec{Name: "bce_with_logits_grad", Const: true},
		lossGradKernel(kernel.BCEWithLogitsGrad[float32]), lossGradKernel(kernel.BCEWithLogitsGrad[float64]))
}

// MSE returns the mean of (x−y)², of this rank's part of the global batch (see CrossEntropy), in Float32 for 16-bit x.
func MSE(x, y tensor.Tensor) tensor.Tensor { return pointLoss(OpMSE, x, y) }

// BCEWithLogits returns the mean binary cross-entropy of logits x and targets y in [0,1], of this rank's part of the
// global batch (see CrossEntropy).
func BCEWithLogits(x, y tensor.Tensor) tensor.Tensor { return pointLoss(OpBCE, x, y) }

func pointLoss(op tensor.Op, x, y tensor.Tensor) tensor.Tensor {
	t := op.Tape(x, y)
	t.CheckTarget(op.String(), x, y)
	x, y = t.Packed(x), t.Packed(y)
	op.SameDType(x, y)
	mustBeAlike(op, x, "the input", y, "the target", x, y)
	dims, rank := dimsOf(x)
	each := t.New(statType(x.DType()), dims[:rank]...)
	unary(t, op, each, x, y)
	count, out := float64(t.GlobalCount(op, x, y)), t.New(each.DType())
	mean(t, out, each, count)
	n := t.Record(op, out, x, y)
	t.LossTypes(op, out, x, y)
	if n != nil {
		n.F[0] = count
	}
	return out
}

// mean launches out = Σ rows / count, and releases rows.
func mean(t *tensor.Tape, out, rows tensor.Tensor, count float64) {
	t.Args(tensor.OpSum, rows.DType()).Out(out).In(rows).Dim = [tensor.MaxNDim]int{1, rows.Len(), 1}
	t.Launch()
	if count != 1 {
		affine(t, out, 1/count)
	}
	t.Release(rows)
}

// upstream returns the loss's gradient divided by count, of one element.
func upstream(t *tensor.Tape, n *tensor.Node) tensor.Tensor {
	g := t.New(n.Out().DType())
	unary(t, tensor.OpCast, g, n.Grad())
	affine(t, g, 1/n.F[0])
	return g
}

func pointLossGrad(t *tensor.Tape, n *tensor.Node, op tensor.Op, x, y tensor.Tensor) tensor.Tensor {
	d := t.NewLike(x)
	if x.Len() > 0 {
		unary(t, op, d, x, y, upstream(t, n))
	}
	return d
}

func mseVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	for i := range 2 {
		if need&(1<<i) != 0 {
			t.AddGrad(n, i, pointLossGrad(t, n, OpMSEGrad, n.In(i), n.In(1-i)))
		}
	}
}

func bceVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	if need&1 != 0 {
		t.AddGrad(n, 0, pointLossGrad(t, n, OpBCEGrad, n.In(0), n.In(1)))
	}
	if need&2 != 0 { // the gradient of −y·x + … for y is −x
		x, g := n.In(0), upstream(t, n)
		dims, rank := dimsOf(x)
		d := t.New(g.DType(), dims[:rank]...) // the type of the loss; for 16-bit logits this is Float32
		unary(t, tensor.OpCast, d, x)
		scale(t, d, g)
		affine(t, d, -1)
		y := t.NewLike(n.In(1))
		unary(t, tensor.OpCast, y, d)
		t.AddGrad(n, 1, y)
	}
}

// unary launches op of operands that lie one after the other.
func unary(t *tensor.Tape, op tensor.Op, out tensor.Tensor, in ...tensor.Tensor) {
	if out.Len() == 0 {
		return
	}
	a := t.Args(op, in[0].DType()).Out(out)
	for _, x := range in {
		a.In(x)
	}
	t.Launch()
}

// affine launches x *= s.
func affine(t *tensor.Tape, x tensor.Tensor, s float64) {
	if x.Len() > 0 {
		t.Args(tensor.OpAffine, x.DType()).Out(x).In(x).F[0] = s
		t.Launch()
	}
}

// scale launches x *= s, which has one element.
func scale(t *tensor.Tape, x, s tensor.Tensor) { binary(t, tensor.OpMul, x, x, s) }

// binary launches out = op(x, s), where s has one element.
func binary(t *tensor.Tape, op tensor.Op, out, x, s tensor.Tensor) {
	if out.Len() == 0 {
		return
	}
	a := t.Args(op, x.DType()).Out(out).In(x).In(s)
	a.NDim, a.Dim[0] = 1, out.Len()
	a.Stride[0][0], a.Stride[1][0], a.Stride[2][0] = 1, 1, b2i(out.Len() == 1)
	t.Launch()
}

// lossKernel applies f(dst, x, y) to the elements.
func lossKernel[T float](f func(dst, x, y []T)) tensor.Kernel {
	return cpu.Parallel(outLen, one, func(a *tensor.Args, lo, hi int) {
		f(tensor.Operand[T](a, 0)[lo:hi], tensor.Operand[T](a, 1)[lo:hi], tensor.Operand[T](a, 2)[lo:hi])
	})
}

// lossGradKernel applies f(dst, g, x, y), where g is one element.
func lossGradKernel[T float](f func(dst, g, x, y []T)) tensor.Kernel {
	return cpu.Parallel(outLen, one, func(a *tensor.Args, lo, hi int) {
		f(tensor.Operand[T](a, 0)[lo:hi], tensor.Operand[T](a, 3), tensor.Operand[T](a, 1)[lo:hi], tensor.Operand[T](a, 2)[lo:hi])
	})
}
