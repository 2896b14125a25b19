package tensor

// broadcastDims writes the shape that a and b broadcast to (NumPy's rules) into h.
func broadcastDims(op Op, h *header, a, b *header) {
	if a.alike(b) {
		h.ndim, h.n, h.dims = a.ndim, a.n, a.dims
		return
	}
	r := max(a.ndim, b.ndim)
	var dims [MaxNDim]int
	for i := 1; i <= int(r); i++ {
		d, e := 1, 1
		if i <= int(a.ndim) {
			d = a.dims[int(a.ndim)-i]
		}
		if i <= int(b.ndim) {
			e = b.dims[int(b.ndim)-i]
		}
		if d != e && d != 1 && e != 1 {
			fail(op.String(), these(a, b), "shapes do not broadcast: %s", mismatch(a, int(a.ndim)-i, "the first", b, int(b.ndim)-i, "the second"))
		}
		if d == 1 {
			d = e
		}
		dims[int(r)-i] = d
	}
	h.setDims(dims[:r])
}

// BroadcastAll puts operands of op on the tape, without gaps, and repeats each to the shape that they broadcast to.
func (t *Tape) BroadcastAll(op Op, xs ...*Tensor) {
	like, h := t.blankHeader(), xs[0].hdr() // an error names the operands
	for _, x := range xs[1:] {
		broadcastDims(op, like, h, x.hdr())
		h = like
	}
	for _, x := range xs {
		*x = t.broadcastTo(t.arg(*x), like).tensor()
	}
}

// strideTo returns the element strides of h when it is broadcast to shape dims (rank r): 0 for a repeated dimension.
func (h *header) strideTo(dims *[MaxNDim]int, r int) (s [MaxNDim]int) {
	step := 1
	for i := 1; i <= int(h.ndim); i++ {
		k, d := r-i, h.dims[int(h.ndim)-i]
		if h.ld != 0 && i == 2 {
			step = h.ld
		}
		if d != 1 || dims[k] == 1 {
			s[k] = step
		}
		step *= d
	}
	return s
}

// flat describes contiguous operands of n elements.
func (a *Args) flat(n int) {
	a.NDim, a.Dim[0] = 1, n
	a.Stride[0][0], a.Stride[1][0], a.Stride[2][0] = 1, 1, 1
}

// merge joins neighbouring dimensions that are contiguous in all n operands, and drops those of size 1.
func (a *Args) merge(n int) {
	k := 0 // dimensions kept
	for d := range a.NDim {
		if a.Dim[d] == 1 {
			continue
		}
		joins := k > 0
		for i := range n {
			joins = joins && a.Stride[i][k-1] == a.Stride[i][d]*a.Dim[d]
		}
		if joins {
			k--
			a.Dim[k] *= a.Dim[d]
		} else {
			a.Dim[k] = a.Dim[d]
		}
		for i := range n {
			a.Stride[i][k] = a.Stride[i][d]
		}
		k++
	}
	if k == 0 { // one element
		a.Dim[0], k = 1, 1
		for i := range n {
			a.Stride[i][0] = 1
		}
	}
	a.NDim = k
}

// binary launches out = op(x, y), broadcast to the shape of out. It merges dimensions if possible. The stride of the last dimension is 1,
// or 0 if an operand is repeated along it.
func (t *Tape) binary(op Op, out, x, y *header) {
	if out.n == 0 {
		return
	}
	a := t.Args(op, x.dtype)
	a.out(out).in(x).in(y)
	if out.ld|x.ld|y.ld == 0 && x.alike(out) && y.alike(out) {
		a.flat(out.n)
	} else {
		r := int(out.ndim)
		a.NDim, a.Dim = r, out.dims
		for i, h := range [3]*header{out, x, y} {
			a.Stride[i] = h.strideTo(&out.dims, r)
		}
		a.merge(3)
		if k := a.NDim; max(a.Stride[0][k-1], a.Stride[1][k-1], a.Stride[2][k-1]) > 1 { // a column of a wider matrix
			a.Dim[k], a.Stride[0][k], a.Stride[1][k], a.Stride[2][k] = 1, 1, 1, 1 // there is room: merge dropped a dimension of size 1
			a.NDim++
		}
	}
	t.Launch()
}

func (t *Tape) sameDType(op string, hs ...*header) {
	for _, h := range hs[1:] {
		if h.dtype != hs[0].dtype {
			failSame(op, hs)
		}
	}
}

func failSame(op string, hs []*header) { fail(op, hs, "element types differ (see Cast)") }

// Binary returns op(x, y) element by element, broadcast as in [Tensor.Add]: op has kernels that read strides (see cpu.Binary).
func (op Op) Binary(x, y Tensor) Tensor {
	t := tapeOfOp(op, x, y)
	a, b := t.arg(x), t.arg(y)
	if a.dtype != b.dtype {
		t.sameDType(op.String(), a, b)
	}
	if a.ty != b.ty && t.typing() {
		a, b = t.countOnce(op, a, b)
	}
	out := t.blankHeader()
	out.dtype = a.dtype
	if op >= OpEq && op <= OpGe {
		out.dtype = Bool
	}
	broadcastDims(op, out, a, b)
	t.alloc(out)
	t.binary(op, out, a, b)
	t.rec(op, out, a, b)
	return out.tensor()
}

// Add returns x + y, broadcast.
func (x Tensor) Add(y Tensor) Tensor { return OpAdd.Binary(x, y) }

// Sub returns x − y, broadcast.
func (x Tensor) Sub(y Tensor) Tensor { return OpSub.Binary(x, y) }

// Mul returns x·y element by element, broadcast.
func (x Tensor) Mul(y Tensor) Tensor { return OpMul.Binary(x, y) }

// Div returns x/y element by element, broadcast.
func (x Tensor) Div(y Tensor) Tensor { return OpDiv.Binary(x, y) }

// Eq returns x == y as Bool, broadcast. Comparisons have no gradient.
func (x Tensor) Eq(y Tensor) Tensor { return OpEq.Binary(x, y) }

// Ne returns x != y as Bool, broadcast.
func (x Tensor) Ne(y Tensor) Tensor { return OpNe.Binary(x, y) }

// Lt returns x < y as Bool, broadcast.
func (x Tensor) Lt(y Tensor) Tensor { return OpLt.Binary(x, y) }

// Le returns x <= y as Bool, broadcast.
func (x Tensor) Le(y Tensor) Tensor { return OpLe.Binary(x, y) }

// Gt returns x > y as Bool, broadcast.
func (x Tensor) Gt(y Tensor) Tensor { return OpGt.Binary(x, y) }

// Ge returns x >= y as Bool, broadcast.
func (x Tensor) Ge(y Tensor) Tensor { return OpGe.Binary(x, y) }

// unary launches out = op(x) or op(g, x). The operands have the same shape, and are made contiguous.
func (t *Tape) unary(op Op, out *header, in ...*header) {
	if out.n == 0 {
		return
	}
	a := t.Args(op, in[0].dtype)
	a.out(out)
	for _, h := range in {
		a.in(h)
	}
	t.Launch()
}

func unaryOp(op Op, x Tensor) Tensor {
	t := tapeOfOp(op, x, x)
	in := t.contiguous(t.arg(x))
	out := t.newLike(in)
	t.unary(op, out, in)
	t.rec(op, out, in)
	return out.tensor()
}

// Neg returns −x.
func (x Tensor) Neg() Tensor { return unaryOp(OpNeg, x) }

// Abs returns |x|. Its gradient at 0 is 0.
func (x Tensor) Abs() Tensor { return unaryOp(OpAbs, x) }

// Exp returns e to the power x.
func (x Tensor) Exp() Tensor { return unaryOp(OpExp, x) }

// Log returns the natural logarithm.
func (x Tensor) Log() Tensor { return unaryOp(OpLog, x) }

// Sqrt returns the square root.
func (x Tensor) Sqrt() Tensor { return unaryOp(OpSqrt, x) }

// Square returns x².
func (x Tensor) Square() Tensor { return unaryOp(OpSquare, x) }

// Recip returns 1/x.
func (x Tensor) Recip() Tensor { return unaryOp(OpRecip, x) }

// Sin returns the sine of x in radians.
func (x Tensor) Sin() Tensor { return unaryOp(OpSin, x) }

// Cos returns the cosine of x in radians.
func (x Tensor) Cos() Tensor { return unaryOp(OpCos, x) }

// Tanh returns the hyperbolic tangent.
func (x Tensor) Tanh() Tensor { return unaryOp(OpTanh, x) }

// Sigmoid returns 1/(1+e^−x).
func (x Tensor) Sigmoid() Tensor { return unaryOp(OpSigmoid, x) }

// ReLU returns max(x, 0).
func (x Tensor) ReLU() Tensor { return unaryOp(OpReLU, x) }

// GELU returns x·Φ(x), exact (Hendrycks and Gimpel 2016).
func (x Tensor) GELU() Tensor { return unaryOp(OpGELU, x) }

// GELUTanh returns the tanh approximation of GELU, PyTorch's approximate="tanh".
func (x Tensor) GELUTanh() Tensor { return unaryOp(OpGELUTanh, x) }

// SiLU returns x·sigmoid(x).
func (x Tensor) SiLU() Tensor { return unaryOp(OpSiLU, x) }

// Affine returns a·x + b.
func (x Tensor) Affine(a, b float64) Tensor {
	if h := x.hdr(); h.tape != nil {
		h.tape.noteAffine(h, a, b)
	}
	return x.affine(a, b, false)
}

// affine is Affine. With global, a is 1 / the number of elements in the global batch.
func (x Tensor) affine(a, b float64, global bool) Tensor {
	t := tapeOf("affine", x)
	in := t.contiguous(t.arg(x))
	out := t.newLike(in)
	if b != 0 && in.ty.On(Partial) != 0 {
		b = t.shift(in, b)
	}
	t.affine(out, in, a, b)
	if n := t.rec(OpAffine, out, in); n != nil {
		n.F[0], n.I[0] = a, 0
		if global {
			n.I[0] = 1
		}
		if t.noting() && (in.n == 1 || in.ty.On(Partial)|in.ty.On(Own) != 0) {
			n.Key = t.callSite()
		}
	}
	return out.tensor()
}

// Scale returns s·x.
func (x Tensor) Scale(s float64) Tensor { return x.Affine(s, 0) }

func (t *Tape) affine(out, in *header, a, b float64) {
	if out.n == 0 {
		return
	}
	args := t.Args(OpAffine, in.dtype)
	args.out(out).in(in)
	args.F[0], args.F[1] = a, b
	t.Launch()
}

// accumulate sets dst = beta·dst + g, for beta 0 or 1. Both have the same number of elements, and dst is contiguous.
func (t *Tape) accumulate(dst, g *header, beta float64) {
	if dst.n == 0 {
		return
	}
	op := OpCopy
	if beta != 0 {
		op = OpAddTo
	}
	a := t.Args(op, g.dtype)
	a.out(dst).in(g)
	if g.ld == 0 {
		a.flat(g.n)
	} else {
		a.NDim, a.Dim = int(g.ndim), g.dims
		a.Stride[0] = [MaxNDim]int{g.dims[1], 1}
		a.Stride[1] = [MaxNDim]int{g.ld, 1}
	}
	t.Launch()
}
