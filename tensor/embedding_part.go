package tensor

// EmbeddingPart is Embedding with a part w [n, d] of a table of total rows: rows first to first+n−1. It returns vectors [..., d] for ids
// [...], and zeros for ids of other parts. The sum over all parts is the result of the whole table. In host memory, ids outside [0, total)
// are a Failure.
func EmbeddingPart(w, ids Tensor, first, total int) Tensor {
	t := tapeOf("embedding", w, ids)
	wh, ih := t.arg(w), t.integers(ids)
	mustShape("embedding", wh.ndim == 2 && int(ih.ndim) < MaxNDim, "wants a table [n, d] and ids of fewer than 6 dimensions", wh, ih)
	if n := wh.dims[0]; n == 0 || first < 0 || first+n > total {
		fail("embedding", these(wh), "is not a part of a table of %d rows, from %d on", total, first)
	}
	t.checkIndex("embedding", wh, ih, total)
	number := func(v int) Tensor { return t.Arange(Int64, float64(v), float64(v+1), 1) }
	at := ih.tensor().Sub(number(first))
	mine := at.Ge(number(0)).And(at.Lt(number(wh.dims[0])))
	dims := ih.dims
	dims[ih.ndim] = 1
	return Embedding(w, at.Mul(mine.Cast(Int64))).Mul(mine.Cast(w.DType()).Reshape(dims[:ih.ndim+1]...))
}
