package tensor

import "slices"

// copyTo copies x, broadcast to the shape of dst, into dst.
func (t *Tape) copyTo(dst, x *header) {
	if dst.n == 0 {
		return
	}
	a := t.Args(OpCopy, x.dtype)
	a.out(dst).in(x)
	if x.ld == 0 && dst.ld == 0 && x.n == dst.n {
		a.flat(dst.n)
	} else {
		a.NDim, a.Dim = int(dst.ndim), dst.dims
		a.Stride[0] = dst.strideTo(&dst.dims, int(dst.ndim))
		a.Stride[1] = x.strideTo(&dst.dims, int(dst.ndim))
		a.merge(2)
	}
	t.Launch()
}

func (t *Tape) contiguousCopy(h *header) *header {
	c := t.newLike(h)
	t.copyTo(c, h)
	return c
}

// contiguous returns h, or a recorded copy if h has gaps.
func (t *Tape) contiguous(h *header) *header {
	if h.ld == 0 {
		return h
	}
	c := t.contiguousCopy(h)
	t.rec(OpCopy, c, h)
	return c
}

func broadcastVJP(t *Tape, n *Node, _ uint8) {
	t.addGrad(n.in[0], t.sumTo(t.alias(n.out.grad), n.in[0]))
}

// Broadcast returns x repeated to the given shape, by NumPy's rules.
func (x Tensor) Broadcast(dims ...int) Tensor {
	t := tapeOf("broadcast", x)
	h := t.arg(x)
	like, out := t.newHeader(h.dtype, dims...), t.blankHeader()
	broadcastDims(OpBroadcast, out, h, like)
	if !out.alike(like) {
		fail("broadcast", these(h, like), "does not fit")
	}
	return t.broadcastTo(h, like).tensor()
}

// broadcastTo returns h with like's shape, contiguous.
func (t *Tape) broadcastTo(h, like *header) *header {
	if h.alike(like) {
		return t.contiguous(h)
	}
	out := t.newTensor(h.dtype, like.dims[:like.ndim]...)
	t.copyTo(out, h)
	t.rec(OpBroadcast, out, h)
	return out
}

// Cast returns x as another element type. Floats to integers truncate and saturate (NaN becomes 0). Integers to narrower ones keep the low
// bits. 16-bit floats are rounded to nearest even, from float32.
func (x Tensor) Cast(d DType) Tensor {
	if offTape("cast", x) {
		return onHost(func(in ...Tensor) Tensor { return in[0].Cast(d) }, x).WithRows(x.Rows())
	}
	t := tapeOf("cast", x)
	in := t.arg(x)
	if in.dtype == d {
		return x
	}
	in = t.contiguous(in)
	out := t.newTensor(d, in.dims[:in.ndim]...)
	t.Cast(out.tensor(), in.tensor())
	out.ty, out.at = in.ty, in.at
	switch {
	case !in.dtype.IsFloat():
	case d.IsFloat():
		t.rec(OpCast, out, in)
	default: // rounding a part of a sum does not round the sum
		out.ty = in.ty.With(in.ty.On(Partial), Own)
	}
	return out.tensor()
}

func castVJP(t *Tape, n *Node, _ uint8) {
	d := t.newTensor(n.in[0].dtype, n.out.dims[:n.out.ndim]...)
	t.Cast(d.tensor(), n.out.grad.tensor())
	t.addGrad(n.in[0], d)
}

// Reshape returns x's elements, in row-major order, with other dimensions. One of them may be −1: it is computed from the others. The
// result shares x's memory if x is contiguous.
func (x Tensor) Reshape(dims ...int) Tensor {
	if offTape("reshape", x) {
		return onHost(func(in ...Tensor) Tensor { return in[0].Reshape(dims...) }, x).rowsOfHost(x, 0, 1)
	}
	t := tapeOf("reshape", x)
	in := t.contiguous(t.arg(x))
	var d [MaxNDim]int
	k := copy(d[:], dims)
	if k < len(dims) {
		fail("reshape", these(in), "to %d dimensions, at most %d", len(dims), MaxNDim)
	}
	free, n := -1, 1
	for i := range k {
		switch {
		case d[i] != -1:
			n *= d[i]
		case free >= 0:
			fail("reshape", these(in), "to %v: only one dimension may be -1", slices.Clone(dims))
		default:
			free = i
		}
	}
	if free >= 0 {
		if n <= 0 {
			fail("reshape", these(in), "to %v: the others do not say what -1 is", slices.Clone(dims))
		}
		d[free] = in.n / n
	}
	out := t.alias(in)
	if out.setDims(d[:k]); out.n != in.n {
		fail("reshape", these(in, out), "other number of elements")
	}
	if t.rec(OpReshape, out, in); in.at != (place{}) && t.typing() {
		t.reshaped(out, in, free)
	}
	return out.tensor()
}

// Permute returns a copy of x with its dimensions in another order: dimension i of the result is dimension perm[i] of x.
func (x Tensor) Permute(perm ...int) Tensor {
	if offTape("permute", x) {
		return onHost(func(in ...Tensor) Tensor { return in[0].Permute(perm...) }, x).rowsOfHost(x, perm...)
	}
	t := tapeOf("permute", x)
	in := t.contiguous(t.arg(x))
	var seen, dims [MaxNDim]int
	for i, p := range perm {
		if len(perm) != int(in.ndim) || p < 0 || p >= len(perm) || seen[p] != 0 {
			fail("permute", these(in), "%v is not a permutation of its dimensions", append([]int(nil), perm...))
		}
		seen[p], dims[i] = 1, in.dims[p]
	}
	if len(perm) != int(in.ndim) {
		fail("permute", these(in), "no permutation given")
	}
	out := t.newTensor(in.dtype, dims[:in.ndim]...)
	var p [MaxNDim]int
	copy(p[:], perm)
	t.permute(out, in, &p)
	if n := t.rec(OpPermute, out, in); n != nil {
		copy(n.I[:], p[:])
	}
	if in.at != (place{}) && t.typing() {
		out.at = in.at.Permute(p[:in.ndim])
	}
	return out.tensor()
}

func (t *Tape) permute(out, in *header, perm *[MaxNDim]int) {
	if out.n == 0 {
		return
	}
	a := t.Args(OpCopy, in.dtype)
	a.out(out).in(in)
	r := int(out.ndim)
	a.NDim, a.Dim = r, out.dims
	a.Stride[0] = out.strideTo(&out.dims, r)
	s := in.strideTo(&in.dims, r)
	for i := range r {
		a.Stride[1][i] = s[perm[i]]
	}
	a.merge(2)
	t.Launch()
}

func permuteVJP(t *Tape, n *Node, _ uint8) {
	var inverse [MaxNDim]int
	for i := range n.out.ndim {
		inverse[n.I[i]] = int(i)
	}
	d := t.newLike(n.in[0])
	t.permute(d, n.out.grad, &inverse)
	t.addGrad(n.in[0], d)
}

// Transpose returns a copy of x with dimensions i and j exchanged. MatMul transposes without a copy.
func (x Tensor) Transpose(i, j int) Tensor {
	var p [MaxNDim]int
	r := x.NDim()
	for k := range r {
		p[k] = k
	}
	i, j = x.h.axis("transpose", i), x.h.axis("transpose", j)
	p[i], p[j] = j, i
	return x.Permute(p[:r]...)
}

// axis returns dimension i, counted from the end if negative.
func (h *header) axis(op string, i int) int {
	k := i
	if k < 0 {
		k += int(h.ndim)
	}
	if k < 0 || k >= int(h.ndim) {
		fail(op, these(h), "no dimension %d", i)
	}
	return k
}

// Slice returns elements lo to hi of dimension dim. On a tape it is a view for the first dimension and for columns of a matrix (so a fused
// QKV is split without a copy), and a copy otherwise. Outside, as in data that a program prepares, x is in host memory: it is a view for
// the first dimension, and the result knows its rows (see WithRows).
func (x Tensor) Slice(dim, lo, hi int) Tensor {
	if offTape("slice", x) {
		return x.sliceOnHost(dim, lo, hi)
	}
	t := tapeOf("slice", x)
	in := t.arg(x)
	d := in.axis("slice", dim)
	if lo < 0 || hi < lo || hi > in.dims[d] {
		fail("slice", these(in), "elements %d to %d of dimension %d", lo, hi, d)
	}
	var out *header
	size := in.dtype.Size()
	switch {
	case d == 0 && in.ndim > 0:
		row := in.n / max(in.dims[0], 1)
		if in.ld != 0 {
			row = in.ld
		}
		out = t.alias(in)
		out.off += lo * row * size
	case d == 1 && in.ndim == 2:
		out = t.alias(in)
		out.off += lo * size
		if out.ld == 0 && hi-lo != in.dims[1] {
			out.ld = in.dims[1]
		}
	default:
		in = t.contiguous(in)
		out = t.newHeader(in.dtype, in.dims[:in.ndim]...)
	}
	out.dims[d] = hi - lo
	out.setDims(out.dims[:out.ndim])
	if out.n == 0 || out.ndim == 2 && out.dims[0] == 1 {
		out.ld = 0
	}
	if out.n == 0 {
		out.off = in.off // a pointer behind the last element is one to other memory: Go's garbage collector refuses it
	}
	if out.st == nil {
		t.alloc(out)
		t.region(OpCopy, out, in, d, lo, true)
	}
	if n := t.rec(OpSlice, out, in); n != nil {
		n.I[0], n.I[1] = d, lo
	}
	if in.at.Of != 0 {
		out.at = in.at.Slice(d, lo, hi, in.dims[d], t.batchAt(in.at))
		t.sliced = t.sliced || out.at != in.at
	} else {
		out.at = in.at
	}
	t.sliced = t.sliced || in.at.Cut() == 1<<d && out.n < in.n
	return out.tensor()
}

// region launches op (copy or add) between part and the elements from lo on of dimension d of whole: from whole to part if read, else from
// part to whole.
func (t *Tape) region(op Op, part, whole *header, d, lo int, read bool) {
	if part.n == 0 {
		return
	}
	a := t.Args(op, part.dtype)
	r := int(part.ndim)
	a.NDim, a.Dim = r, part.dims
	ps, ws := part.strideTo(&part.dims, r), whole.strideTo(&whole.dims, r)
	view := *whole
	view.off += lo * ws[d] * whole.dtype.Size()
	view.n -= lo * ws[d]
	view.ld = 0
	if read {
		a.out(part).in(&view)
		a.Stride[0], a.Stride[1] = ps, ws
	} else {
		a.out(&view).in(part)
		a.Stride[0], a.Stride[1] = ws, ps
	}
	a.merge(2)
	t.Launch()
}

// sliceVJP adds g to its part of the gradient of the whole, whose memory is made once for all slices.
func sliceVJP(t *Tape, n *Node, _ uint8) {
	h, g := n.in[0], n.out.grad
	if !h.isLeaf() && h.more == nil && h.grad != nil && !h.grad.shared() {
		t.region(OpAddTo, g, h.grad, n.I[0], n.I[1], false)
		return
	}
	whole := t.full(h, 0)
	t.region(OpCopy, g, whole, n.I[0], n.I[1], false)
	t.addGrad(h, whole)
}

// Split returns x cut along dim into pieces of the given sizes. It allocates on the Go heap; Slice does not.
func (x Tensor) Split(dim int, sizes ...int) []Tensor {
	out := make([]Tensor, len(sizes))
	lo := 0
	for i, s := range sizes {
		out[i] = x.Slice(dim, lo, lo+s)
		lo += s
	}
	if lo != x.Dim(dim) {
		fail("split", these(x.h), "sizes sum to %d, not %d", lo, x.Dim(dim))
	}
	return out
}

// Concat joins tensors along dim. More than 8 are joined in two halves, because a node has at most 8 inputs.
func Concat(dim int, xs ...Tensor) Tensor {
	if allOffTape("concat", xs...) {
		y := onHost(func(in ...Tensor) Tensor { return Concat(dim, in...) }, xs...)
		if slices.ContainsFunc(xs, func(x Tensor) bool { return x.Rows() != xs[0].Rows() }) {
			return y
		}
		return y.rowsOfHost(xs[0], 0, 1)
	}
	return tapeOf("concat", xs...).concat(dim, xs...)
}

func (t *Tape) concat(dim int, xs ...Tensor) Tensor {
	if n := len(xs); n > maxInputs {
		return t.concat(dim, t.concat(dim, xs[:n/2]...), t.concat(dim, xs[n/2:]...))
	}
	in := t.operands(len(xs))
	total := 0
	for i, x := range xs {
		in[i] = t.contiguous(t.arg(x))
		total += in[i].dims[in[i].axis("concat", dim)]
	}
	d := in[0].axis("concat", dim)
	out := t.newHeader(in[0].dtype, in[0].dims[:in[0].ndim]...)
	out.dims[d] = total
	out.setDims(out.dims[:out.ndim])
	t.alloc(out)
	t.sameDType("concat", in...)
	lo := 0
	for _, h := range in {
		same := *h
		if d < int(h.ndim) {
			same.dims[d] = in[0].dims[d]
		}
		mustBeAlike("concat", in[0], "the first", &same, "another", in...)
		t.region(OpCopy, h, out, d, lo, false)
		lo += h.dims[d]
	}
	if n := t.rec(OpConcat, out, in...); n != nil {
		n.I[0] = d
	}
	if t.typing() {
		t.joined(out, in, d)
	}
	return out.tensor()
}

func concatVJP(t *Tape, n *Node, need uint8) {
	lo := 0
	for i, h := range n.in {
		if need&(1<<i) != 0 {
			d := t.newLike(h)
			t.region(OpCopy, d, n.out.grad, n.I[0], lo, true)
			t.addGrad(h, d)
		}
		lo += h.dims[n.I[0]]
	}
}
