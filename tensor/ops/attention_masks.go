package ops

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

func (o *AttentionOptions) check(op tensor.Op) {
	if !(o.Drop >= 0 && o.Drop < 1) {
		op.Fail(nil, "probability %v is not in [0,1)", o.Drop)
	}
	if o.Offset != 0 && !o.Causal {
		op.Fail(nil, "an Offset of %d has no meaning without Causal", o.Offset)
	}
	if o.Window < 0 || o.Window > 0 && !o.Causal {
		op.Fail(nil, "a Window of %d has no meaning: it is positive, and Causal is set", o.Window)
	}
	if ok := func(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }; !ok(o.Scale) || !ok(o.SoftCap) {
		op.Fail(nil, "Scale %v and SoftCap %v must be positive, or 0 for the default", o.Scale, o.SoftCap)
	}
}

func (o *AttentionOptions) masked() bool {
	return !(o.KeyLengths.IsZero() && o.QueryDocs.IsZero() && o.KeyDocs.IsZero())
}

// masks returns the lengths of keys and the documents of queries and keys as the kernels read them; none if absent.
func (o *AttentionOptions) masks(t *tensor.Tape, q, k tensor.Tensor) (m [3]tensor.Tensor) {
	if !o.masked() {
		return m
	}
	if o.QueryDocs.IsZero() != o.KeyDocs.IsZero() {
		OpCrossAttention.Fail([]tensor.Tensor{q, k}, "QueryDocs and KeyDocs belong together, but only one is given")
	}
	b := q.Dim(0)
	m = [3]tensor.Tensor{mask(t, "KeyLengths", o.KeyLengths, b), mask(t, "QueryDocs", o.QueryDocs, b, q.Dim(1)),
		mask(t, "KeyDocs", o.KeyDocs, b, k.Dim(1))}
	if !m[0].IsZero() && t.Device().Host() {
		n := tensor.Data[int64](m[0])
		if i := kernel.CheckIndex(n, k.Dim(1)+1); i >= 0 {
			OpCrossAttention.Fail([]tensor.Tensor{q, k}, "KeyLengths of sequence %d is %d, not in [0,%d]", i, n[i], k.Dim(1))
		}
	}
	return m
}

// mask returns x, which must hold integers of shape want, as contiguous Int64.
func mask(t *tensor.Tape, name string, x tensor.Tensor, want ...int) tensor.Tensor {
	if x.IsZero() {
		return x
	}
	if d, n := dimsOf(x); !slices.Equal(d[:n], want) || x.DType() != tensor.Int32 && x.DType() != tensor.Int64 {
		OpCrossAttention.Fail([]tensor.Tensor{x}, "%s has to be %v, or int32 of this shape", name,
			tensor.Shape{DType: tensor.Int64, Dims: slices.Clone(want)})
	}
	return t.Integers(x)
}

// keysBefore returns the number of key positions before the rank's first query, if the keys are of whole sequences and the queries are of a
// part. Keys that are a part themselves are a Failure, unless parts is true.
func keysBefore(t *tensor.Tape, q, k tensor.Tensor, parts bool) int {
	r := t.Batch(tensor.Tensor{})
	if r.Positions == 0 || r.Positions == r.Seq.Total || q.Len() == 0 || k.Len() == 0 {
		return 0
	}
	in := []tensor.Tensor{q, k}
	if k.Dim(1) == r.Positions && !parts {
		OpCrossAttention.Fail(in, "the step has %v: a position would see this rank's part of its sequence only", r)
	}
	if k.Dim(1) == r.Seq.Total && q.Dim(1) == r.Positions {
		if r.Seq.Skip > 0 {
			OpCrossAttention.Fail(in, "the step has two runs of each sequence (%+v): each needs an attention, with its own Offset", r.Seq)
		}
		return r.Seq.First
	}
	return 0
}
