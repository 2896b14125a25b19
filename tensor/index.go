package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// integers returns x as contiguous Int64, if it is Int32 or Int64.
func (t *Tape) integers(x Tensor) *header {
	h := t.arg(x)
	if h.dtype == Int32 {
		h = t.alias(h).tensor().Cast(Int64).h
	}
	return t.contiguous(h)
}

// checkIndex panics if an index in host memory is out of range.
func (t *Tape) checkIndex(op string, x, idx *header, n int) {
	if idx.dtype != Int64 {
		fail(op, these(x, idx), "indices must be int64 or int32")
	}
	if !t.dev.Host() {
		return
	}
	ids := Data[int64](idx.tensor())
	if i := kernel.CheckIndex(ids, n); i >= 0 {
		fail(op, these(x, idx), "index %d is %d, not in [0,%d)", i, ids[i], n)
	}
}

// Embedding returns rows of the table w [n, d]: [..., d] for ids [...], Int64 or Int32.
func Embedding(w, ids Tensor) Tensor {
	t := tapeOf("embedding", w, ids)
	wh, ih := t.contiguous(t.arg(w)), t.integers(ids)
	mustShape("embedding", wh.ndim == 2, "wants a table [n, d]", wh, ih)
	t.checkIndex("embedding", wh, ih, wh.dims[0])
	out := t.newHeader(wh.dtype, ih.dims[:ih.ndim]...)
	if int(out.ndim) == MaxNDim {
		fail("embedding", these(ih), "too many dimensions")
	}
	out.dims[out.ndim] = wh.dims[1]
	out.setDims(out.dims[:out.ndim+1])
	t.alloc(out)
	if out.n > 0 {
		a := t.Args(OpEmbedding, wh.dtype)
		a.out(out).in(wh).in(ih)
		a.Dim[0], a.Dim[1] = ih.n, wh.dims[1]
		t.Launch()
	}
	if t.rec(OpEmbedding, out, wh, ih); t.typing() {
		t.looked(out, wh, ih)
	}
	return out.tensor()
}

func embeddingVJP(t *Tape, n *Node, _ uint8) {
	w, ids := n.in[0], n.in[1]
	dst, beta := t.gradTarget(w)
	if beta == 0 {
		t.fill(dst, 0)
	}
	if n.out.n > 0 {
		a := t.Args(OpEmbeddingGrad, dst.dtype)
		a.out(dst).in(n.out.grad).in(ids)
		a.Dim[0], a.Dim[1] = ids.n, w.dims[1]
		t.Launch()
	}
	t.gradDone(w, dst)
}

// checkGather returns x as [outer, n, inner] around dim, and the size of idx there.
func checkGather(t *Tape, op string, x, idx *header, dim int) (d, outer, n, m, inner int) {
	d = x.axis(op, dim)
	same := *idx
	if d < int(idx.ndim) {
		same.dims[d] = x.dims[d]
	}
	mustBeAlike(op, x, "the input", &same, "the indices", x, idx)
	t.checkIndex(op, x, idx, x.dims[d])
	outer, n, inner = x.split3(d)
	return d, outer, n, idx.dims[d], inner
}

// Gather returns x[..., idx[i], ...] along dim, as torch.gather: idx (Int64 or Int32) has x's shape but for dim.
func (x Tensor) Gather(dim int, idx Tensor) Tensor {
	t := tapeOf("gather", x, idx)
	in, ih := t.contiguous(t.arg(x)), t.integers(idx)
	d, outer, size, m, inner := checkGather(t, "gather", in, ih, dim)
	out := t.newTensor(in.dtype, ih.dims[:ih.ndim]...)
	t.gather(out, in, ih, outer, size, m, inner)
	if n := t.rec(OpGather, out, in, ih); n != nil {
		n.I = [8]int{d, outer, size, m, inner}
	}
	if t.typing() {
		t.picked("gather", out, in, ih, d)
	}
	return out.tensor()
}

func (t *Tape) gather(out, x, idx *header, outer, n, m, inner int) {
	if out.n == 0 {
		return
	}
	a := t.Args(OpGather, x.dtype)
	a.out(out).in(x).in(idx)
	a.Dim = [MaxNDim]int{outer, n, m, inner}
	t.Launch()
}

func (t *Tape) scatterAdd(dst, src, idx *header, outer, n, m, inner int) {
	if src.n == 0 {
		return
	}
	a := t.Args(OpScatterAdd, dst.dtype)
	a.out(dst).in(src).in(idx)
	a.Dim = [MaxNDim]int{outer, n, m, inner}
	t.Launch()
}

func gatherVJP(t *Tape, n *Node, _ uint8) {
	d := t.full(n.in[0], 0)
	t.scatterAdd(d, n.out.grad, n.in[1], n.I[1], n.I[2], n.I[3], n.I[4])
	t.addGrad(n.in[0], d)
}

// ScatterAdd returns x with src[i] added at x[..., idx[i], ...] along dim, as torch.scatter_add. Elements with the same index are added in
// order.
func (x Tensor) ScatterAdd(dim int, idx, src Tensor) Tensor {
	t := tapeOf("scatter_add", x, src)
	in, ih, sh := t.arg(x), t.integers(idx), t.contiguous(t.arg(src))
	t.sameDType("scatter_add", in, sh)
	d, outer, size, m, inner := checkGather(t, "scatter_add", in, ih, dim)
	mustBeAlike("scatter_add", ih, "the indices", sh, "the source", in, ih, sh)
	out := t.contiguousCopy(in)
	t.scatterAdd(out, sh, ih, outer, size, m, inner)
	if n := t.rec(OpScatterAdd, out, in, ih, sh); n != nil {
		n.I = [8]int{d, outer, size, m, inner}
		if ih.ty.On(Own) != 0 && t.noting() && t.dev.Host() && !t.picksAll(ih, in.dims[d]) {
			n.Key = t.callSite()
		}
	}
	if t.typing() {
		t.scattered(out, in, ih, sh, d)
	}
	return out.tensor()
}

func scatterAddVJP(t *Tape, n *Node, need uint8) {
	if need&4 != 0 {
		d := t.newLike(n.in[2])
		t.gather(d, n.out.grad, n.in[1], n.I[1], n.I[2], n.I[3], n.I[4])
		t.addGrad(n.in[2], d)
	}
	if need&1 != 0 {
		t.addGrad(n.in[0], t.alias(n.out.grad))
	}
}
