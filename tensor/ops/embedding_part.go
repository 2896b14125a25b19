package ops

import "github.com/ringo-ml/ringo/tensor"

// EmbeddingPart is [Embedding] with a part w [n, d] of a table of total rows: rows first to first+n−1. It returns vectors [..., d] for
// ids [...], and zeros for ids of other parts. The sum over all parts is the result of the whole table. In host memory, ids outside
// [0, total) are a Failure.
func EmbeddingPart(w, ids tensor.Tensor, first, total int) tensor.Tensor {
	op := OpEmbedding
	t := op.Tape(w, ids)
	w, ids = t.Packed(w), t.Integers(ids)
	if w.NDim() != 2 || ids.NDim() == tensor.MaxNDim {
		op.Fail([]tensor.Tensor{w, ids}, "wants a table [n, d] and ids of fewer than 6 dimensions")
	}
	if n := w.Dim(0); n == 0 || first < 0 || first+n > total {
		op.Fail([]tensor.Tensor{w}, "is not a part of a table of %d rows, from %d on", total, first)
	}
	t.CheckIndices(op, w, ids, total)
	number := func(v int) tensor.Tensor { return Arange(t, tensor.Int64, float64(v), float64(v+1), 1) }
	at := ids.Sub(number(first))
	mine := And(at.Ge(number(0)), at.Lt(number(w.Dim(0))))
	d, rank := dimsOf(ids)
	d[rank] = 1
	return Embedding(w, at.Mul(mine.Cast(tensor.Int64))).Mul(mine.Cast(w.DType()).Reshape(d[:rank+1]...))
}
