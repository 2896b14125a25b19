package tensor

// GroupedLinear multiplies each group of rows by its own matrix, as a mixture of experts does. The first counts[0] rows of x [rows, in] are
// multiplied by the transpose of w[0], the next counts[1] rows by that of w[1], and so on, for w [groups, out, in]. It returns [rows, out].
// Groups may be empty. counts [groups] are Int64 or Int32, and their sum is the number of rows.
func GroupedLinear(x, w, counts Tensor) Tensor {
	t := tapeOfOp(OpGroupedLinear, x, w)
	xh, wh, ch := t.contiguous(t.arg(x)), t.arg(w), t.integers(counts)
	t.sameDType("grouped_linear", xh, wh)
	ok := xh.ndim == 2 && wh.ndim == 3 && ch.ndim == 1
	mustShape("grouped_linear", ok, "wants rows [n, in], weights [groups, out, in] and counts [groups]", xh, wh, ch)
	mustMatch("grouped_linear", xh, 1, "the rows", wh, 2, "the weights", xh, wh, ch)
	mustMatch("grouped_linear", ch, 0, "the counts", wh, 0, "the weights", xh, wh, ch)
	if ch.dtype != Int64 {
		fail("grouped_linear", these(ch), "counts must be int64 or int32")
	}
	out := t.newTensor(xh.dtype, xh.dims[0], wh.dims[1])
	t.grouped(OpGroupedLinear, out, xh, wh, ch, wh.dims[1], wh.dims[2], true, 0)
	t.rec(OpGroupedLinear, out, xh, wh, ch)
	return out.tensor()
}

// grouped launches, for OpGroupedLinear, c = a·b[e] + beta·c for each group e of rows, where b[e] is k x n, or n x k if tb. For
// OpGroupedGrad it launches c[e] = aᵀ·b + beta·c[e] for each group of rows; a has n columns and b has k.
func (t *Tape) grouped(op Op, c, a, b, counts *header, n, k int, tb bool, beta float64) {
	args := t.Args(op, a.dtype)
	args.out(c).in(a).in(b).in(counts)
	args.Dim[0], args.Dim[1], args.Dim[2], args.Dim[3] = a.dims[0], n, k, counts.n
	args.NDim = 4
	args.I[0], args.F[0] = b2i(tb), beta
	t.Launch()
}

func groupedVJP(t *Tape, n *Node, need uint8) {
	x, w, counts, g := n.in[0], n.in[1], n.in[2], n.out.grad
	out, in := w.dims[1], w.dims[2]
	if need&1 != 0 {
		dst, beta := t.gradTarget(x)
		t.grouped(OpGroupedLinear, dst, g, w, counts, in, out, false, beta)
		t.gradDone(x, dst)
	}
	if need&2 != 0 {
		dst, beta := t.gradTarget(w)
		t.grouped(OpGroupedGrad, dst, g, x, counts, out, in, false, beta)
		t.gradDone(w, dst)
	}
}

// checkCounts panics unless the counts add up to rows.
func checkCounts(counts []int64, rows int) {
	left := int64(rows)
	for _, n := range counts {
		if n < 0 || n > left {
			left = -1
			break
		}
		left -= n
	}
	if left != 0 {
		fail("grouped_linear", nil, "group sizes %v do not fit %d rows", counts, rows)
	}
}
