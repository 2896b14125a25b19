package tensor

import "slices"

// Linear layers of one input, such as those of queries, keys and values, are one product where a device has OpLinears: a batch of matrices
// at equal distances, with the same input. So their parameters have to lie in one memory: see Param.Together; units of package fsdp have
// them so, too, and buckets of package ddp their gradients. Each result is without gaps, as if it were alone. In Backward, the gradients of
// the weights are one batch where those of the results lie in one memory (NewLikes). The gradient of x is the sum of one product each.

// maxLinears is the number of layers in one product.
const maxLinears = 3

// Linears computes out[i] = Linear(x, w[i], b[i]) of two or three layers in one product. A bias is nil in all of them, or in none. It
// reports false, and does nothing, where that cannot be: the device has no OpLinears, x still arrives, or parameters differ in shape or
// type, or do not lie at equal distances in one memory (see Param.Together).
func (t *Tape) Linears(out []Tensor, x Tensor, w, b []*Param) bool {
	n, xh := len(w), t.arg(x)
	if t.table[OpLinears][xh.dtype] == nil || xh.st.ptr == nil || xh.n == 0 || !areApart(xh.dtype, w, b) {
		return false
	}
	var ws, bs, ys [maxLinears]*header
	for i, p := range w {
		if ws[i] = t.Use(p).h; b[i] != nil {
			bs[i] = t.Use(b[i]).h
		}
		t.checkLinear(xh, ws[i], bs[i])
	}
	like, dw := *xh, apart(ws[:n])
	like.dims[like.ndim-1], like.n = ws[0].dims[0], xh.rowCount()*ws[0].dims[0]
	size := like.dtype.Size()
	dy := roundUp(like.n*size) / size
	if dw < 0 {
		dy = -dy
	}
	t.likeBatch(ys[:n], &like, dy)
	y, wh := t.batch(ys[:n], dy, true), t.batch(ws[:n], dw, false)
	g := gemm{batch: n, m: xh.rowCount(), n: ws[0].dims[0], k: ws[0].dims[1], tb: true, sb: abs(dw), sc: abs(dy), joined: true}
	if bs[0] != nil {
		db := apart(bs[:n])
		g.bias, g.sbias = t.batch(bs[:n], db, false), abs(db)
	}
	t.gemmWhole(y, xh, wh, &g)
	t.release(y)
	t.release(wh)
	if g.bias != nil {
		t.release(g.bias)
	}
	recorded := 0
	var last *Node
	for i, h := range ys[:n] {
		if last = t.rec(OpLinear, h, xh, ws[i], bs[i]); last != nil {
			recorded++
		}
		out[i] = h.tensor()
	}
	if recorded == n {
		last.I[1] = n
	}
	return true
}

// areApart reports whether two or three layers can be one product: weights w, and biases b, of type d, each lie at equal distances, in the
// same order.
func areApart(d DType, w, b []*Param) bool {
	n := len(w)
	if n < 2 || n > maxLinears {
		return false
	}
	var ws, bs [maxLinears]*header
	biases := 0
	for i, p := range w {
		if p.through != nil || p.Value.IsZero() || p.Value.DType() != d {
			return false
		}
		if ws[i] = p.Value.hdr(); b[i] == nil {
			continue
		}
		if b[i].through != nil || b[i].Value.IsZero() || b[i].Value.DType() != d {
			return false
		}
		bs[biases] = b[i].Value.hdr()
		biases++
	}
	dw := apart(ws[:n])
	return dw != 0 && ws[0].n > 0 && (biases == 0 || biases == n && apart(bs[:n])*dw > 0)
}

// linearsGrad computes the gradients of the weights and biases of n, the last node of one product, and of the others. It reports false if
// these are not ready, or not all wanted. It is one product where the gradients, and what they are made of, lie at equal distances.
func (t *Tape) linearsGrad(n *Node, need uint8) bool {
	c := n.I[1]
	need &= 6 // x may be a parameter, too: that is another gradient
	if c == 0 || t.putOff || n.deferred || need != n.need&n.leaf&6 || need&2 == 0 {
		return false
	}
	var nodes [maxLinears]*Node
	var gs, dws, dbs [maxLinears]*header
	for i := range c {
		m := t.node(t.at - (c - 1 - i))
		if m.op != OpLinear || m.in[0] != n.in[0] || m.need&m.leaf&6 != need || m.out.grad == nil || m.out.more != nil || m.out.grad.ld != 0 {
			return false
		}
		nodes[i], gs[i] = m, m.out.grad
	}
	var betas, more [maxLinears]float64
	for i, m := range nodes[:c] {
		t.beforeUse(m)
		dws[i], betas[i] = t.gradTarget(m.in[1])
		if need&4 != 0 {
			dbs[i], more[i] = t.gradTarget(m.in[2])
		}
	}
	dg, dw := apart(gs[:c]), apart(dws[:c])
	joined := dg*dw > 0 && min(betas[0], betas[1], betas[c-1]) == max(betas[0], betas[1], betas[c-1])
	if joined {
		t.weightsGrad(n, gs[:c], dws[:c], dbs[:c], dg, dw, betas[0], more[:c])
	}
	for i, m := range nodes[:c] {
		if !joined {
			t.weightGrad(m, dws[i], dbs[i], betas[i], more[i])
		}
		t.gradDone(m.in[1], dws[i])
		if dbs[i] != nil {
			t.gradDone(m.in[2], dbs[i])
		}
		if m != n {
			m.need &^= need
		}
	}
	return true
}

// weightsGrad launches dws[i] = beta·dws[i] + gs[i]ᵀ·x, which lie dw and dg apart, and the gradients of the biases, if there are any.
func (t *Tape) weightsGrad(n *Node, gs, dws, dbs []*header, dg, dw int, beta float64, more []float64) {
	x, w := n.in[0], n.in[1]
	rows := x.rowCount()
	p := gemm{batch: len(gs), m: w.dims[0], n: w.dims[1], k: rows, ta: true, sa: abs(dg), sc: abs(dw), beta: beta}
	if dbs[0] != nil && slices.Max(more) == 0 && t.table[OpLinearGradW][x.dtype] != nil {
		if d := apart(dbs); d*dg > 0 {
			p.sums, p.sbias = t.batch(dbs, d, true), abs(d)
		}
	}
	g, to := t.batch(gs, dg, false), t.batch(dws, dw, true)
	t.gemm(to, g, x, &p)
	t.release(g)
	t.release(to)
	if p.sums != nil {
		t.release(p.sums)
		return
	}
	for i, db := range dbs {
		if db != nil {
			t.colSum(db, gs[i], rows, w.dims[0], more[i])
		}
	}
}

// NewLikes makes tensors of the shapes and types of xs, with memory of any content. Where xs lie behind each other in one memory of the
// tape, so do these.
func (t *Tape) NewLikes(out, xs []Tensor) {
	var hs [maxLinears]*header
	n, d := len(xs), 0
	if n > 1 && n <= maxLinears {
		for i, x := range xs {
			hs[i] = x.hdr()
		}
		d = apart(hs[:n])
	}
	if d == 0 || hs[0].st.arena == nil || hs[0].n == 0 || abs(d)*hs[0].dtype.Size() > roundUp(hs[0].n*hs[0].dtype.Size()) {
		for i, x := range xs {
			out[i] = t.NewLike(x)
		}
		return
	}
	t.likeBatch(hs[:n], hs[0], d)
	for i, h := range hs[:n] {
		out[i] = h.tensor()
	}
}

// likeBatch sets hs to tensors like x in one memory, each d elements behind the one before.
func (t *Tape) likeBatch(hs []*header, x *header, d int) {
	last := len(hs) - 1
	all := t.newTensor(x.dtype, last*abs(d)+x.n)
	for i := range hs {
		h, at := t.alias(all), i*d
		if d < 0 {
			at = (i - last) * d
		}
		h.sizeAs(x)
		h.off = at * x.dtype.Size()
		hs[i] = h
	}
	t.release(all)
}

// batch returns tensors that lie d elements apart as one operand, from the first in memory to the end of the last. With write, it is
// written.
func (t *Tape) batch(hs []*header, d int, write bool) *header {
	for _, h := range hs { // Args.add knows what still uses the memory of one of them
		if h.st.numPending > 0 {
			h.mustBeFree(OpLinear.String(), h.ptr(), write)
		}
	}
	first := hs[0]
	if d < 0 {
		first = hs[len(hs)-1]
	}
	all := t.alias(first)
	all.base, all.n = nil, all.n+(len(hs)-1)*abs(d)
	return all
}

// apart returns how many elements each tensor lies behind the one before it: 0 if they differ in shape or type, overlap, or do not lie at
// equal distances in one memory.
func apart(hs []*header) int {
	d := behind(hs[0], hs[1])
	for i := 2; i < len(hs); i++ {
		if behind(hs[i-1], hs[i]) != d {
			return 0
		}
	}
	if abs(d) < hs[0].n {
		return 0
	}
	return d
}

// behind returns how many elements b lies behind a, in the same memory; else 0.
func behind(a, b *header) int {
	if a.dtype != b.dtype || !a.alike(b) || a.ld != 0 || b.ld != 0 || a.st == nil || b.st == nil {
		return 0
	}
	d := b.off - a.off
	if a.st != b.st {
		if a.st.heap == nil || a.st.heap != b.st.heap {
			return 0
		}
		d += int(uintptr(b.st.ptr)) - int(uintptr(a.st.ptr))
	}
	if d%a.dtype.Size() != 0 {
		return 0
	}
	return d / a.dtype.Size()
}

func abs(n int) int { return max(n, -n) }
