package tensor

// The operations that prepare data work on tensors in host memory that belong to no tape, too: Slice, Split, Concat, Reshape, Permute,
// Transpose and Cast. Everything else needs a tape.

// offTape is allOffTape for one.
func offTape(op string, x Tensor) bool { return x.h != nil && x.h.tape == nil && allOffTape(op, x) }

// allOffTape reports whether none of xs is on a tape and all are in host memory. It fails for the value of a parameter: what is computed
// from it without Use has no gradient.
func allOffTape(op string, xs ...Tensor) bool {
	for _, x := range xs {
		if x.h == nil || x.hdr().tape != nil || !x.h.st.dev.Host() {
			return false
		}
	}
	for _, x := range xs {
		if name := x.h.st.wholeName(); name != "" {
			fail(op, these(x.h), "it is the value of %s: Tape.Use puts that on a tape, with its gradient; View, Range and Floats read it", name)
		}
	}
	return len(xs) > 0
}

// onHost returns fn(xs...) in memory of its own. fn runs on a tape.
func onHost(fn func(in ...Tensor) Tensor, xs ...Tensor) Tensor {
	t := NewTape(hostDevice, NoGrad())
	defer t.Close()
	in := make([]Tensor, len(xs))
	for i, x := range xs {
		in[i] = t.Input(x)
	}
	y := t.contiguous(fn(in...).hdr())
	out := New(hostDevice, y.dtype, y.dims[:y.ndim]...)
	transfer(out.h, y)
	return out
}

// sliceOnHost is Slice outside of tapes. The result knows its rows.
func (x Tensor) sliceOnHost(dim, lo, hi int) (y Tensor) {
	h := x.h
	d := h.axis("slice", dim)
	r := h.rowsOf()
	if d == 0 && h.ld == 0 && lo >= 0 && lo <= hi && hi <= h.dims[0] {
		row := h.n / max(h.dims[0], 1)
		dims := h.dims
		dims[0] = hi - lo
		y = x.Range(lo*row, hi*row).View(dims[:h.ndim]...)
	} else {
		y = onHost(func(in ...Tensor) Tensor { return in[0].Slice(d, lo, hi) }, x)
	}
	switch {
	case r.Stride == 0:
		return y
	case d == 0:
		r.First += lo * r.Stride
	case d == 1 && r.Seq.Total != 0:
		r.Seq = r.Seq.Slice(lo, hi)
	}
	return y.WithRows(r)
}

// rowsOfHost returns y, computed from x outside of tapes, with x's rows if its leading dimensions are x's. Dimensions 0 and 1 of y are
// dimensions perm of x.
func (y Tensor) rowsOfHost(x Tensor, perm ...int) Tensor {
	r := x.h.rowsOf()
	keeps := func(d int) bool {
		return d < y.NDim() && d < len(perm) && perm[d] == d && y.Dim(d) == x.Dim(d)
	}
	if r.Stride == 0 || !keeps(0) || r.Seq.Total != 0 && !keeps(1) {
		return y
	}
	return y.WithRows(r)
}
