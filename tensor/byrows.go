package tensor

// ByRows is a Function that reads its input only through Ctx.Rows. Then a product before it is computed in parts, when the Function asks
// for them: a reduce-scatter sends the first parts while the next ones are computed.
type ByRows interface {
	Function
	ByRows()
}

// lazyProduct is a product that is not computed yet.
type lazyProduct struct{ out, x, w *header }

// LinearApply returns f applied to Linear(x, w). If f is ByRows, the product is never whole in memory.
func LinearApply(f Function, x, w Tensor) Tensor {
	if _, ok := f.(ByRows); !ok {
		y := Linear(x, w, Tensor{})
		return y.Tape().Apply(f, y)
	}
	t := tapeOfOp(OpLinear, x, w)
	xh, wh := t.arg(x), t.arg(w)
	t.checkLinear(xh, wh, nil)
	out := t.blankHeader()
	out.sizeAs(xh)
	out.dims[out.ndim-1], out.n = wh.dims[0], xh.rowCount()*wh.dims[0]
	t.rec(OpLinear, out, xh, wh)
	before := t.lazy
	t.lazy = lazyProduct{out, xh, wh}
	y := t.Apply(f, out.tensor())
	t.lazy = before
	return y
}

// Rows writes rows lo to hi of x, an input of Forward, to dst. The leading dimensions of x count as one.
func (c *Ctx) Rows(dst, x Tensor, lo, hi int) {
	t, d, h := c.t, dst.hdr(), x.hdr()
	cols := h.dims[h.ndim-1]
	if lo < 0 || hi < lo || hi > h.rowCount() || d.n != (hi-lo)*cols || d.dtype != h.dtype || d.ld != 0 {
		fail(c.f.Name(), these(d, h), "rows %d to %d do not fit", lo, hi)
	}
	part := arrival{lo: lo, hi: hi}
	if p := t.lazy; p.out == h {
		rows := t.rowsOf(p.x, part)
		t.gemm(d, rows, p.w, &gemm{batch: 1, m: hi - lo, n: cols, k: p.w.dims[1], tb: true})
		t.release(rows)
		return
	}
	rows := t.rowsOf(t.contiguous(h), part)
	Copy(dst, rows.tensor())
	t.release(rows)
}
