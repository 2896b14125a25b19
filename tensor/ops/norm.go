package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The operations of LayerNorm and RMSNorm, and of their gradients: of the input, of the weight, and, where a device has it, of all in one
// pass.
var (
	OpLayerNorm, OpLayerNormGradX, OpLayerNormGradW, OpLayerNormGrad tensor.Op
	OpRMSNorm, OpRMSNormGradX, OpRMSNormGradW, OpRMSNormGrad         tensor.Op
)

func init() {
	step := func(name string) tensor.OpSpec { return tensor.OpSpec{Name: name, Const: true} }
	norm := func(name string, vjp tensor.VJP) tensor.OpSpec {
		return tensor.OpSpec{Name: name, Saves: 3, VJP: vjp, Rows: tensor.RowsLast}
	}
	OpLayerNorm = registerAll(norm("layer_norm", layerNormVJP), cpu.ByRows("ossxww", layerNormPart[float32], layerNormPart[float64]))
	OpLayerNormGradX = registerAll(step("layer_norm_grad_x"), cpu.ByRows("oxxwss", layerNormGradXPart[float32], layerNormGradXPart[float64]))
	OpLayerNormGradW = registerAll(tensor.OpSpec{Name: "layer_norm_grad_w", Const: true}, layerNormGradWKernels())
	OpLayerNormGrad = register(tensor.OpSpec{Name: "layer_norm_grad", Const: true, Optional: true}, nil, nil)
	OpRMSNorm = registerAll(norm("rms_norm", rmsNormVJP), cpu.ByRows("osxw", rmsNormPart[float32], rmsNormPart[float64]))
	OpRMSNormGradX = registerAll(step("rms_norm_grad_x"), cpu.ByRows("oxxws", rmsNormGradXPart[float32], rmsNormGradXPart[float64]))
	OpRMSNormGradW = registerAll(tensor.OpSpec{Name: "rms_norm_grad_w", Const: true}, rmsNormGradWKernels())
	OpRMSNormGrad = register(tensor.OpSpec{Name: "rms_norm_grad", Const: true, Optional: true}, nil, nil)
}

// normOperand checks a weight or a bias, which may be none.
func normOperand(t *tensor.Tape, op tensor.Op, x, w tensor.Tensor, role string) tensor.Tensor {
	if w.IsZero() {
		return w
	}
	w = t.Packed(w)
	op.SameDType(x, w)
	if cols := x.Dim(-1); w.Len() != cols {
		op.Fail([]tensor.Tensor{x, w}, "dimension %d of the input is %d, %s has %d elements", x.NDim()-1, cols, w.NameOr(role), w.Len())
	}
	return w
}

// lastDim returns x without gaps on its tape, which needs a last dimension.
func lastDim(op tensor.Op, x tensor.Tensor) (*tensor.Tape, tensor.Tensor) {
	t := op.Tape(x)
	x = t.Packed(x)
	if x.NDim() == 0 {
		op.Fail([]tensor.Tensor{x}, "needs a dimension")
	}
	return t, x
}

// LayerNorm normalizes the last dimension of x to mean 0 and variance 1, then applies weight w and bias b. Each of them has the size of the
// last dimension, or is none (Ba et al. 2016; the variance is the biased one, as in PyTorch).
func LayerNorm(x, w, b tensor.Tensor, eps float64) tensor.Tensor {
	t, x := lastDim(OpLayerNorm, x)
	w, b = normOperand(t, OpLayerNorm, x, w, "the weight"), normOperand(t, OpLayerNorm, x, b, "the bias")
	t.NoteNumber("LayerNorm", x, 0, eps)
	out := t.NewLike(x)
	st, rows := statType(x.DType()), x.Len()/max(x.Dim(-1), 1)
	mean, rstd := t.New(st, rows), t.New(st, rows)
	if x.Len() > 0 {
		a := byRow(t, OpLayerNorm, x, x.DType()).Out(out).Out(mean).Out(rstd).In(x)
		maybeIn(maybeIn(a, w), b).F[0] = eps
		t.Launch()
	}
	t.Save(t.Record(OpLayerNorm, out, x, w, b), mean, rstd)
	return out
}

// RMSNorm divides the last dimension of x by its root mean square, then multiplies it by weight w, which has the size of that dimension or
// is none (Zhang and Sennrich 2019).
func RMSNorm(x, w tensor.Tensor, eps float64) tensor.Tensor {
	t, x := lastDim(OpRMSNorm, x)
	w = normOperand(t, OpRMSNorm, x, w, "the weight")
	t.NoteNumber("RMSNorm", x, 0, eps)
	out, rstd := t.NewLike(x), t.New(statType(x.DType()), x.Len()/max(x.Dim(-1), 1))
	if x.Len() > 0 {
		maybeIn(byRow(t, OpRMSNorm, x, x.DType()).Out(out).Out(rstd).In(x), w).F[0] = eps
		t.Launch()
	}
	t.Save(t.Record(OpRMSNorm, out, x, w), rstd)
	return out
}

// byRow prepares a launch of op over the rows of x's last dimension.
func byRow(t *tensor.Tape, op tensor.Op, x tensor.Tensor, d tensor.DType) *tensor.Args {
	a, cols := t.Args(op, d), x.Dim(-1)
	a.Dim[0], a.Dim[1] = x.Len()/max(cols, 1), cols
	return a
}

func layerNormVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, g, mean, rstd := n.In(0), n.Grad(), n.Saved(0), n.Saved(1)
	if t.Has(OpLayerNormGrad, x.DType()) && normGrads(t, OpLayerNormGrad, n, 3) {
		return
	}
	if need&1 != 0 {
		d := t.NewLike(x)
		if x.Len() > 0 {
			maybeIn(byRow(t, OpLayerNormGradX, x, x.DType()).Out(d).In(x).In(g), n.In(1)).In(mean).In(rstd)
			t.Launch()
		}
		t.AddGrad(n, 0, d)
	}
	if need&2 != 0 {
		dst, beta := t.GradTarget(n, 1)
		if dst.Len() > 0 {
			byRow(t, OpLayerNormGradW, x, dst.DType()).Out(dst).In(x).In(g).In(mean).In(rstd).F[0] = beta
			t.Launch()
		}
		t.GradDone(n, 1, dst)
	}
	if need&4 != 0 {
		dst, beta := t.GradTarget(n, 2)
		if dst.Len() > 0 {
			byRow(t, tensor.OpColSum, x, g.DType()).Out(dst).In(g).F[0] = beta
			t.Launch()
		}
		t.GradDone(n, 2, dst)
	}
}

func rmsNormVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, g, rstd := n.In(0), n.Grad(), n.Saved(0)
	if t.Has(OpRMSNormGrad, x.DType()) && normGrads(t, OpRMSNormGrad, n, 2) {
		return
	}
	if need&1 != 0 {
		d := t.NewLike(x)
		if x.Len() > 0 {
			maybeIn(byRow(t, OpRMSNormGradX, x, x.DType()).Out(d).In(x).In(g), n.In(1)).In(rstd)
			t.Launch()
		}
		t.AddGrad(n, 0, d)
	}
	if need&2 != 0 {
		dst, beta := t.GradTarget(n, 1)
		if dst.Len() > 0 {
			byRow(t, OpRMSNormGradW, x, dst.DType()).Out(dst).In(x).In(g).In(rstd).F[0] = beta
			t.Launch()
		}
		t.GradDone(n, 1, dst)
	}
}

// normGrads computes all gradients of a norm in one pass over x and g, and adds that of x to the one that is there. It reports false
// if that is not needed.
func normGrads(t *tensor.Tape, op tensor.Op, n *tensor.Node, inputs int) bool {
	x, w, need := n.In(0), n.In(1), n.Needs()
	if x.Len() == 0 || need&1 == 0 || need == 1 || x == w || n.In(inputs-1) == x || inputs == 3 && n.In(2) == w {
		return false
	}
	var dst [3]tensor.Tensor
	var beta [8]float64
	for i := range inputs {
		if need&(1<<i) != 0 {
			dst[i], beta[i] = t.GradTarget(n, i)
		}
	}
	a := byRow(t, op, x, x.DType())
	for _, d := range dst[:inputs] {
		maybeOut(a, d)
	}
	maybeIn(a.In(x).In(n.Grad()), w)
	for i := range inputs - 1 {
		a.In(n.Saved(i))
	}
	a.F = beta
	t.Launch()
	for i, d := range dst[:inputs] {
		if !d.IsZero() {
			t.GradDone(n, i, d)
		}
	}
	n.Done()
	return true
}
