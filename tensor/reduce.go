package tensor

import "math/bits"

// reduce launches op over count dimensions of x from axis on. For Max and Min, idx gets the position of the result.
func (t *Tape) reduce(op Op, out, idx, x *header, axis, count int) {
	if out.n == 0 {
		return
	}
	a := t.Args(op, x.dtype)
	a.out(out)
	if idx != nil {
		a.out(idx)
	}
	a.in(x)
	a.Dim[0], a.Dim[1], a.Dim[2] = product(x.dims[:axis]), product(x.dims[axis:axis+count]), product(x.dims[axis+count:x.ndim])
	t.Launch()
}

// Sum returns the sum over the given dimensions, which are removed; without arguments, over all.
func (x Tensor) Sum(dims ...int) Tensor {
	t := tapeOf("sum", x)
	if h := t.arg(x); h.at.Flat() != 0 {
		t.mustNotRepeat("sum", h, dims)
	}
	return t.sum(x, dims)
}

func (t *Tape) sum(x Tensor, dims []int) Tensor {
	in := t.contiguous(t.arg(x))
	var mask int
	for _, d := range dims {
		mask |= 1 << in.axis("sum", d)
	}
	if len(dims) == 0 {
		mask = 1<<in.ndim - 1
	}
	out := t.sumMask(in, mask)
	n := t.rec(OpSum, out, in)
	t.reduced("sum", out, in, mask, true)
	if n != nil {
		n.I[0] = mask
	}
	return out.tensor()
}

// sumMask sums over the dimensions in mask: one launch for each run of neighbouring dimensions, from the last one on. 16-bit floats are
// rounded once, at the end.
func (t *Tape) sumMask(in *header, mask int) *header {
	if mask == 0 {
		return t.contiguousCopy(in)
	}
	h := in
	if several := mask>>bits.TrailingZeros(uint(mask)) + 1; several&(several-1) != 0 && in.dtype.IsHalf() {
		h = t.newTensor(Float32, in.dims[:in.ndim]...)
		t.cast(h, in)
	}
	for end := int(in.ndim); end > 0; {
		if mask&(1<<(end-1)) == 0 {
			end--
			continue
		}
		first := end - 1
		for first > 0 && mask&(1<<(first-1)) != 0 {
			first--
		}
		out := t.newHeader(h.dtype, h.dims[:h.ndim]...)
		copy(out.dims[first:], h.dims[end:h.ndim])
		out.setDims(out.dims[:int(h.ndim)-(end-first)])
		t.alloc(out)
		t.reduce(OpSum, out, nil, h, first, end-first)
		if h != in {
			t.release(h)
		}
		h, end = out, first
	}
	if h.dtype == in.dtype {
		return h
	}
	out := t.newTensor(in.dtype, h.dims[:h.ndim]...)
	t.cast(out, h)
	t.release(h)
	return out
}

// Mean returns the mean over the given dimensions, which are removed; without arguments, over all. Means of 16-bit floats are computed in
// float32.
func (x Tensor) Mean(dims ...int) Tensor {
	if d := x.DType(); d.IsHalf() {
		return x.Cast(Float32).Mean(dims...).Cast(d)
	}
	s := tapeOf("sum", x).sum(x, dims)
	s = s.affine(float64(s.Len())/float64(x.Len()), 0, false)
	s.h.meanType(x.h)
	return s
}

func sumVJP(t *Tape, n *Node, _ uint8) {
	in, g := n.in[0], t.alias(n.out.grad)
	wide := in.dims
	for i := range in.ndim {
		if n.I[0]&(1<<i) != 0 {
			wide[i] = 1
		}
	}
	g.setDims(wide[:in.ndim])
	d := t.newLike(in)
	t.copyTo(d, g)
	t.release(g)
	t.addGrad(in, d)
}

func extremum(op Op, x Tensor, dim int) (values, indices *header) {
	t := tapeOf(op.String(), x)
	in := t.contiguous(t.arg(x))
	d := in.axis(op.String(), dim)
	if in.dims[d] == 0 {
		fail(op.String(), these(in), "no elements in dimension %d", d)
	}
	out := t.newHeader(in.dtype, in.dims[:in.ndim]...)
	copy(out.dims[d:], in.dims[d+1:in.ndim])
	out.setDims(out.dims[:in.ndim-1])
	t.alloc(out)
	idx := t.newTensor(Int64, out.dims[:out.ndim]...)
	idx.ty = in.ty
	t.reduce(op, out, idx, in, d, 1)
	if n := t.rec(op, out, in); n != nil {
		n.I[0] = d
		n.aux[0] = t.alias(idx)
	}
	t.reduced(op.String(), out, in, 1<<d, false)
	t.reduced(op.String(), idx, in, 1<<d, false)
	return out, idx
}

// Max returns the largest elements along dim, which is removed, and their positions (Int64; the first of equal ones).
func (x Tensor) Max(dim int) (values, indices Tensor) {
	v, i := extremum(OpMax, x, dim)
	return v.tensor(), i.tensor()
}

// Min returns the smallest elements along dim, which is removed, and their positions (Int64; the first of equal ones).
func (x Tensor) Min(dim int) (values, indices Tensor) {
	v, i := extremum(OpMin, x, dim)
	return v.tensor(), i.tensor()
}

// ArgMax returns the position of the largest element along dim as Int64.
func (x Tensor) ArgMax(dim int) Tensor {
	t := tapeOf(OpMax.String(), x)
	h := t.alias(t.arg(x)) // positions have no gradient
	_, i := extremum(OpMax, h.tensor(), dim)
	t.release(h)
	return i.tensor()
}

func selectVJP(t *Tape, n *Node, _ uint8) {
	in := n.in[0]
	d := t.full(in, 0)
	outer, size, inner := in.split3(n.I[0])
	t.scatterAdd(d, n.out.grad, n.aux[0], outer, size, 1, inner)
	t.addGrad(in, d)
}
