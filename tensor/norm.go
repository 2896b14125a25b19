package tensor

// statType is the type in which a norm keeps its statistics.
func statType(d DType) DType {
	if d.IsHalf() {
		return Float32
	}
	return d
}

// mustBeOf fails unless w has an element for each element of x's last dimension.
func mustBeOf(op string, x, w *header, role string) {
	if cols := x.dims[x.ndim-1]; w.n != cols {
		fail(op, these(x, w), "dimension %d of the input is %d, %s has %d elements", x.ndim-1, cols, w.called(role), w.n)
	}
}

func normArgs(op string, x, w, b Tensor) (t *Tape, xh, wh, bh *header, cols int) {
	t = tapeOf(op, x)
	xh = t.contiguous(t.arg(x))
	mustShape(op, xh.ndim >= 1, "needs a dimension", xh)
	cols = xh.dims[xh.ndim-1]
	if !w.IsZero() {
		wh = t.contiguous(t.arg(w))
		t.sameDType(op, xh, wh)
		mustBeOf(op, xh, wh, "the weight")
	}
	if !b.IsZero() {
		bh = t.contiguous(t.arg(b))
		t.sameDType(op, xh, bh)
		mustBeOf(op, xh, bh, "the bias")
	}
	return
}

// LayerNorm normalizes the last dimension of x to mean 0 and variance 1, then applies weight w and bias b. Each of them has the size of the
// last dimension, or is none (Ba et al. 2016; the variance is the biased one, as in PyTorch).
func LayerNorm(x, w, b Tensor, eps float64) Tensor {
	t, xh, wh, bh, cols := normArgs("layer_norm", x, w, b)
	t.NoteNumber("LayerNorm", xh.tensor(), 0, eps)
	out := t.newLike(xh)
	st := statType(xh.dtype)
	mean, rstd := t.newTensor(st, xh.n/max(cols, 1)), t.newTensor(st, xh.n/max(cols, 1))
	if xh.n > 0 {
		a := t.byRow(OpLayerNorm, cols, xh.dtype, []*header{out, mean, rstd}, []*header{xh, wh, bh})
		a.F[0] = eps
		t.Launch()
	}
	n := t.rec(OpLayerNorm, out, xh, wh, bh)
	t.keepStats(n, mean, rstd)
	return out.tensor()
}

func (t *Tape) keepStats(n *Node, stats ...*header) {
	for i, s := range stats {
		if n != nil {
			n.aux[i] = s
		} else {
			t.release(s)
		}
	}
}

func layerNormVJP(t *Tape, n *Node, need uint8) {
	x, w, b, g, mean, rstd := n.in[0], n.in[1], n.in[2], n.out.grad, n.aux[0], n.aux[1]
	cols := x.dims[x.ndim-1]
	if t.normGrads(OpLayerNormGrad, n, mean, rstd) {
		return
	}
	if need&1 != 0 {
		d := t.newLike(x)
		if x.n > 0 {
			t.byRow(OpLayerNormGradX, cols, x.dtype, []*header{d}, []*header{x, g, w, mean, rstd})
			t.Launch()
		}
		t.addGrad(x, d)
	}
	if need&2 != 0 {
		dst, beta := t.gradTarget(w)
		t.normGradW(OpLayerNormGradW, cols, beta, dst, x, g, mean, rstd)
		t.gradDone(w, dst)
	}
	if need&4 != 0 {
		dst, beta := t.gradTarget(b)
		t.colSum(dst, g, x.rowCount(), cols, beta)
		t.gradDone(b, dst)
	}
}

func (t *Tape) normGradW(op Op, cols int, beta float64, dst *header, in ...*header) {
	if cols == 0 {
		return
	}
	a := t.byRow(op, cols, dst.dtype, []*header{dst}, in)
	a.F[0] = beta
	t.Launch()
}

// RMSNorm divides the last dimension of x by its root mean square, then multiplies it by weight w, which has the size of that dimension or
// is none (Zhang and Sennrich 2019).
func RMSNorm(x, w Tensor, eps float64) Tensor {
	t, xh, wh, _, cols := normArgs("rms_norm", x, w, Tensor{})
	t.NoteNumber("RMSNorm", xh.tensor(), 0, eps)
	out := t.newLike(xh)
	rstd := t.newTensor(statType(xh.dtype), xh.n/max(cols, 1))
	if xh.n > 0 {
		a := t.byRow(OpRMSNorm, cols, xh.dtype, []*header{out, rstd}, []*header{xh, wh})
		a.F[0] = eps
		t.Launch()
	}
	n := t.rec(OpRMSNorm, out, xh, wh)
	t.keepStats(n, rstd)
	return out.tensor()
}

func rmsNormVJP(t *Tape, n *Node, need uint8) {
	x, w, g, rstd := n.in[0], n.in[1], n.out.grad, n.aux[0]
	cols := x.dims[x.ndim-1]
	if t.normGrads(OpRMSNormGrad, n, rstd) {
		return
	}
	if need&1 != 0 {
		d := t.newLike(x)
		if x.n > 0 {
			t.byRow(OpRMSNormGradX, cols, x.dtype, []*header{d}, []*header{x, g, w, rstd})
			t.Launch()
		}
		t.addGrad(x, d)
	}
	if need&2 != 0 {
		dst, beta := t.gradTarget(w)
		t.normGradW(OpRMSNormGradW, cols, beta, dst, x, g, rstd)
		t.gradDone(w, dst)
	}
}
