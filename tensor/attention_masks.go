package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

func (o *AttentionOptions) check(op string) {
	if !(o.Drop >= 0 && o.Drop < 1) {
		fail(op, nil, "probability %v is not in [0,1)", o.Drop)
	}
	if o.Offset != 0 && !o.Causal {
		fail(op, nil, "an Offset of %d has no meaning without Causal", o.Offset)
	}
	if o.Window < 0 || o.Window > 0 && !o.Causal {
		fail(op, nil, "a Window of %d has no meaning: it is positive, and Causal is set", o.Window)
	}
	if !finite(o.Scale) || !finite(o.SoftCap) || o.Scale < 0 || o.SoftCap < 0 {
		fail(op, nil, "Scale %v and SoftCap %v must be positive, or 0 for the default", o.Scale, o.SoftCap)
	}
}

func (o *AttentionOptions) masked() bool {
	return !(o.KeyLengths.IsZero() && o.QueryDocs.IsZero() && o.KeyDocs.IsZero())
}

// masks returns the lengths of keys and the documents of queries and keys as the kernels read them; nil if absent.
func (t *Tape) masks(o *AttentionOptions, q, k *header) (m [3]*header) {
	if !o.masked() {
		return m
	}
	if o.QueryDocs.IsZero() != o.KeyDocs.IsZero() {
		fail("cross_attention", these(q, k), "QueryDocs and KeyDocs belong together, but only one is given")
	}
	b := q.dims[0]
	m = [3]*header{t.mask("KeyLengths", o.KeyLengths, b), t.mask("QueryDocs", o.QueryDocs, b, q.dims[1]),
		t.mask("KeyDocs", o.KeyDocs, b, k.dims[1])}
	if m[0] != nil && t.dev.Host() {
		n := Data[int64](m[0].tensor())
		if i := kernel.CheckIndex(n, k.dims[1]+1); i >= 0 {
			fail("cross_attention", these(q, k), "KeyLengths of sequence %d is %d, not in [0,%d]", i, n[i], k.dims[1])
		}
	}
	return m
}

// mask returns x, which must hold integers of shape dims, as contiguous Int64.
func (t *Tape) mask(name string, x Tensor, dims ...int) *header {
	if x.IsZero() {
		return nil
	}
	h, want := t.arg(x), header{dtype: Int64}
	want.setDims(dims)
	if !h.alike(&want) || h.dtype != Int32 && h.dtype != Int64 {
		fail("cross_attention", these(h), "%s has to be %v, or int32 of this shape", name, want.shape())
	}
	return t.integers(x)
}

// keysBefore returns the number of key positions before the rank's first query, if the keys are of whole sequences and the queries are of a
// part. Keys that are a part themselves are a Failure, unless parts is true.
func (t *Tape) keysBefore(q, k *header, parts bool) int {
	r := t.rows
	if r.Positions == 0 || r.Positions == r.Seq.Total || q.n == 0 || k.n == 0 {
		return 0
	}
	if k.dims[1] == r.Positions && !parts {
		fail("cross_attention", these(q, k), "the step has %v: a position would see this rank's part of its sequence only", r)
	}
	if k.dims[1] == r.Seq.Total && q.dims[1] == r.Positions {
		if r.Seq.Skip > 0 {
			fail("cross_attention", these(q, k), "the step has two runs of each sequence (%+v): each needs an attention, with its own Offset", r.Seq)
		}
		return r.Seq.First
	}
	return 0
}

// attentionMasks returns the masks, which are the operands from i on.
func attentionMasks(a *Args, i int) kernel.AttentionMasks {
	return kernel.AttentionMasks{KeyLengths: slice[int64](a, i), QueryDocs: slice[int64](a, i+1), KeyDocs: slice[int64](a, i+2)}
}
