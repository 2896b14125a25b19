package tensor

import "math/bits"

// addUp launches the sum over count dimensions of x from axis on.
func (t *Tape) addUp(out, x *header, axis, count int) {
	if out.n == 0 {
		return
	}
	a := t.Args(OpSum, x.dtype)
	a.out(out).in(x)
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
		t.Cast(h.tensor(), in.tensor())
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
		t.addUp(out, h, first, end-first)
		if h != in {
			t.release(h)
		}
		h, end = out, first
	}
	if h.dtype == in.dtype {
		return h
	}
	out := t.newTensor(in.dtype, h.dims[:h.ndim]...)
	t.Cast(out.tensor(), h.tensor())
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
