package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The operations of Softmax, SoftmaxCausal, LogSoftmax and LogSumExp, and of their gradients.
var OpSoftmax, OpSoftmaxCausal, OpSoftmaxGrad, OpLogSoftmax, OpLogSoftmaxGrad, OpLogSumExp, OpLogSumExpGrad tensor.Op

func init() {
	grad := func(name string, k kernels) tensor.Op { return registerAll(tensor.OpSpec{Name: name, Const: true}, k) }
	row := func(name string, saves tensor.SaveMask, vjp tensor.VJP, k kernels) tensor.Op {
		return registerAll(tensor.OpSpec{Name: name, Saves: saves, VJP: vjp, Rows: tensor.RowsLast}, k)
	}
	OpSoftmaxGrad = grad("softmax_grad",
		cpu.ByRows("oxx", softGradPart(kernel.SoftmaxGrad[float32]), softGradPart(kernel.SoftmaxGrad[float64])))
	OpSoftmax = row("softmax", tensor.SaveOut, softmaxVJP(OpSoftmaxGrad),
		cpu.ByRows("ox", softPart(kernel.Softmax[float32]), softPart(kernel.Softmax[float64])))
	OpSoftmaxCausal = row("softmax_causal", tensor.SaveOut, softmaxVJP(OpSoftmaxGrad),
		cpu.ByRows("ox", softmaxCausalPart[float32], softmaxCausalPart[float64]))
	OpLogSoftmaxGrad = grad("log_softmax_grad",
		cpu.ByRows("oxx", softGradPart(kernel.LogSoftmaxGrad[float32]), softGradPart(kernel.LogSoftmaxGrad[float64])))
	OpLogSoftmax = row("log_softmax", tensor.SaveOut, softmaxVJP(OpLogSoftmaxGrad),
		cpu.ByRows("ox", softPart(kernel.LogSoftmax[float32]), softPart(kernel.LogSoftmax[float64])))
	OpLogSumExpGrad = grad("logsumexp_grad", floats(logSumExpGradKernel[float32](), logSumExpGradKernel[float64](), nil))
	OpLogSumExp = row("logsumexp", 1|tensor.SaveOut, logSumExpVJP,
		cpu.ByRows("sx", softPart(kernel.LogSumExp[float32]), softPart(kernel.LogSumExp[float64])))
}

// Softmax returns e^x, divided by its sum along the last dimension.
func Softmax(x tensor.Tensor) tensor.Tensor { return softmax(OpSoftmax, x) }

// SoftmaxCausal is Softmax over the last dimension (keys) of attention scores [..., queries, keys], where a query sees no key of a later
// position. If there are more keys than queries, the queries are at the last positions.
func SoftmaxCausal(x tensor.Tensor) tensor.Tensor { return softmax(OpSoftmaxCausal, x) }

// LogSoftmax returns the logarithm of Softmax, computed stably.
func LogSoftmax(x tensor.Tensor) tensor.Tensor { return softmax(OpLogSoftmax, x) }

func softmax(op tensor.Op, x tensor.Tensor) tensor.Tensor {
	t, x := lastDim(op, x)
	if op == OpSoftmaxCausal && (x.NDim() < 2 || x.Dim(-1) < x.Dim(-2)) {
		op.Fail([]tensor.Tensor{x}, "wants scores [..., queries, keys], no more queries than keys")
	}
	out := t.NewLike(x)
	if out.Len() > 0 {
		a := byRow(t, op, x, x.DType()).Out(out).In(x)
		if op == OpSoftmaxCausal {
			a.I[0] = x.Dim(-2)
		}
		t.Launch()
	}
	t.Record(op, out, x)
	return out
}

func softmaxVJP(grad tensor.Op) tensor.VJP {
	return func(t *tensor.Tape, n *tensor.Node, _ uint8) {
		d := t.NewLike(n.Out())
		if d.Len() > 0 {
			byRow(t, grad, d, d.DType()).Out(d).In(n.Out()).In(n.Grad())
			t.Launch()
		}
		t.AddGrad(n, 0, d)
	}
}

// LogSumExp returns log Σ e^x along the last dimension, which is removed.
func LogSumExp(x tensor.Tensor) tensor.Tensor {
	t, x := lastDim(OpLogSumExp, x)
	dims, rank := dimsOf(x)
	lse := t.New(statType(x.DType()), dims[:rank-1]...)
	if lse.Len() > 0 { // also where x has no elements
		byRow(t, OpLogSumExp, x, x.DType()).Out(lse).In(x).Dim[0] = lse.Len()
		t.Launch()
	}
	if lse.DType() == x.DType() {
		t.Record(OpLogSumExp, lse, x)
		return lse
	}
	out := t.New(x.DType(), dims[:rank-1]...) // the gradient rule needs lse in full precision
	t.Cast(out, lse)
	t.Save(t.Record(OpLogSumExp, out, x), lse)
	return out
}

func logSumExpVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	x, lse := n.In(0), n.Saved(0)
	if lse.IsZero() {
		lse = n.Out()
	}
	d := t.NewLike(x)
	if d.Len() > 0 {
		byRow(t, OpLogSumExpGrad, x, x.DType()).Out(d).In(x).In(lse).In(n.Grad())
		t.Launch()
	}
	t.AddGrad(n, 0, d)
}

func softPart[T float](f func(dst, x []T, cols, lo, hi int)) cpu.Part {
	return func(_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
		f(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), a.Dim[1], lo, hi)
	}
}

func softGradPart[T float](f func(dst, g, y []T, cols, lo, hi int)) cpu.Part {
	return func(_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
		f(tensor.Operand[T](a, 0), tensor.Operand[T](a, 2), tensor.Operand[T](a, 1), a.Dim[1], lo, hi)
	}
}

func softmaxCausalPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	kernel.SoftmaxCausal(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), a.Dim[1], lo, hi, a.I[cpu.RowOffset], a.I[0])
}

func logSumExpGradKernel[T float]() tensor.Kernel {
	return cpu.Parallel(dim0, dim1, func(a *tensor.Args, lo, hi int) {
		x := operands[T](a)
		kernel.LogSumExpGrad(x[0], x[3], x[1], x[2], a.Dim[1], lo, hi)
	})
}
