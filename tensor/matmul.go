package tensor

// gemm describes a launch of C = op(A)·op(B) + beta·C on matrices that may be batched. Instead of beta·C, a bias may be added to each row,
// and then act is applied. c is [batch,m,n]. A batch stride of 0 repeats a matrix.
type gemm struct {
	batch, m, n, k int
	ta, tb         bool
	sa, sb, sc     int // elements between matrices of the batch
	sbias          int // between biases, or sums, of the batch
	beta           float64
	bias           *header // [n], or nil
	act            Activation
	pre            *header // gets the input of the activation, or nil
	add            *header // is added to the product, and C is another matrix (OpLinearAdd)
	slope          *header // the input of act: C is multiplied by act's derivative there (OpLinearGradX)
	sums           *header // [m], gets the sums of A's columns (OpLinearGradW)
	joined         bool    // several layers of one input (OpLinears)
}

func rowStride(h *header, cols int) int {
	if h.ld != 0 {
		return h.ld
	}
	return cols
}

func (g *gemm) op() Op {
	switch {
	case g.add != nil:
		return OpLinearAdd
	case g.slope != nil:
		return OpLinearGradX
	case g.sums != nil:
		return OpLinearGradW
	case g.act != NoActivation:
		return OpLinearAct
	case g.joined:
		return OpLinears
	}
	return OpMatMul
}

func (t *Tape) gemm(c, a, b *header, g *gemm) {
	if g.batch*g.m*g.n == 0 || a.st.ptr == nil && t.gemmArriving(c, a, b, g) {
		return
	}
	t.gemmWhole(c, a, b, g)
}

func (t *Tape) gemmWhole(c, a, b *header, g *gemm) {
	args := t.Args(g.op(), a.dtype)
	if g.pre != nil {
		args.out(g.pre)
	}
	args.out(c)
	if g.sums != nil {
		args.out(g.sums)
	}
	args.in(a).in(b)
	if g.bias != nil {
		args.in(g.bias)
	} else if g.add != nil {
		args.None()
	}
	if g.add != nil {
		args.in(g.add)
	}
	if g.slope != nil {
		args.in(g.slope)
	}
	args.Dim[0], args.Dim[1], args.Dim[2], args.Dim[3] = g.batch, g.m, g.n, g.k
	args.NDim = 4
	lda, ldb := g.k, g.n
	if g.ta {
		lda = g.m
		args.I[0] = 1
	}
	if g.tb {
		ldb = g.k
		args.I[1] = 1
	}
	s := &args.Stride
	s[0][0], s[0][1], s[0][2] = g.sc, rowStride(c, g.n), g.sbias
	s[1][0], s[1][1] = g.sa, rowStride(a, lda)
	s[2][0], s[2][1] = g.sb, rowStride(b, ldb)
	args.F[0] = g.beta
	args.I[5] = int(g.act)
	t.Launch()
}

// rowCount returns the product of all dimensions but the last.
func (h *header) rowCount() int { return product(h.dims[:h.ndim-1]) }

// MatMul returns op(a)·op(b); op transposes the last two dimensions if the flag is set. Leading dimensions are a batch. They are equal in
// both, or only a has them: then b is one matrix, and a is not transposed.
func MatMul(a, b Tensor, transA, transB bool) Tensor {
	t := tapeOf("matmul", a, b)
	ah, bh := t.arg(a), t.arg(b)
	t.sameDType("matmul", ah, bh)
	g := matmulShape(ah, bh, transA, transB)
	if ah.ndim > 2 && bh.ndim == 2 {
		ah = t.contiguous(ah)
	}
	out := t.newHeader(ah.dtype, ah.dims[:ah.ndim]...)
	out.dims[out.ndim-2], out.dims[out.ndim-1] = g.m, g.n
	if ah.ndim > 2 && bh.ndim == 2 {
		g.m, g.batch = g.m*g.batch, 1
	}
	out.setDims(out.dims[:out.ndim])
	t.alloc(out)
	t.gemm(out, ah, bh, &g)
	if n := t.rec(OpMatMul, out, ah, bh); n != nil {
		n.I = [8]int{b2i(transA), b2i(transB), g.batch, g.m, g.n, g.k}
	}
	if (ah.at != place{} || bh.at != place{}) && t.typing() {
		t.contract("matmul", out, ah, bh, transA, transB)
	}
	return out.tensor()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unfit fails, and names the dimensions of a and b that must be equal.
func unfit(a, b *header, ta, tb bool) {
	in := these(a, b)
	if b.ndim > 2 {
		for i := range int(a.ndim) - 2 {
			mustMatch("matmul", a, i, "the first", b, i, "the second", in...)
		}
	}
	mustMatch("matmul", a, int(a.ndim)-1-b2i(ta), "the first", b, int(b.ndim)-2+b2i(tb), "the second", in...)
}

func matmulShape(a, b *header, ta, tb bool) gemm {
	if a.ndim < 2 || b.ndim < 2 || b.ndim > 2 && a.ndim != b.ndim || a.ndim > 2 && b.ndim == 2 && ta {
		fail("matmul", these(a, b), "needs matrices, or batches of them (transposed %v, %v)", ta, tb)
	}
	g := gemm{batch: 1, ta: ta, tb: tb}
	g.m, g.k = a.dims[a.ndim-2], a.dims[a.ndim-1]
	k, n := b.dims[b.ndim-2], b.dims[b.ndim-1]
	g.sa, g.sb = g.m*g.k, k*n
	if ta {
		g.m, g.k = g.k, g.m
	}
	if tb {
		k, n = n, k
	}
	g.n = n
	ok := g.k == k
	for i := range int(a.ndim) - 2 {
		g.batch *= a.dims[i]
		ok = ok && (b.ndim == 2 || a.dims[i] == b.dims[i])
	}
	if !ok {
		unfit(a, b, ta, tb)
	}
	g.sc = g.m * g.n
	return g
}

// For y = op(A)·op(B): dA = g·op(B)ᵀ and dB = op(A)ᵀ·g, transposed if the operand is.
func matmulVJP(t *Tape, n *Node, need uint8) {
	a, b, gr := n.in[0], n.in[1], n.out.grad
	ta, tb := n.I[0] == 1, n.I[1] == 1
	batch, m, nn, k := n.I[2], n.I[3], n.I[4], n.I[5]
	sb := k * nn
	if need&1 != 0 {
		dst, beta := t.gradTarget(a)
		if ta {
			t.gemm(dst, b, gr, &gemm{batch: batch, m: k, n: m, k: nn, ta: tb, tb: true, sa: sb, sb: m * nn, sc: m * k, beta: beta})
		} else {
			t.gemm(dst, gr, b, &gemm{batch: batch, m: m, n: k, k: nn, tb: !tb, sa: m * nn, sb: sb, sc: m * k, beta: beta})
		}
		t.gradDone(a, dst)
	}
	if need&2 != 0 {
		dst, beta := t.gradTarget(b)
		if tb {
			t.gemm(dst, gr, a, &gemm{batch: batch, m: nn, n: k, k: m, ta: true, tb: ta, sa: m * nn, sb: m * k, sc: sb, beta: beta})
		} else {
			t.gemm(dst, a, gr, &gemm{batch: batch, m: k, n: nn, k: m, ta: !ta, sa: m * k, sb: m * nn, sc: sb, beta: beta})
		}
		t.gradDone(b, dst)
	}
}
