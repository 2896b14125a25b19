package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

func (o *AttentionOptions) masked() bool {
	return !(o.KeyLengths.IsZero() && o.QueryDocs.IsZero() && o.KeyDocs.IsZero())
}

// masks returns the lengths of keys and the documents of queries and keys as kernels take them; nil where absent.
func (t *Tape) masks(o *AttentionOptions, q, k *header) (m [3]*header) {
	if !o.masked() {
		return m
	}
	if o.QueryDocs.IsZero() != o.KeyDocs.IsZero() {
		fail("cross_attention", []Shape{q.shape(), k.shape()}, "QueryDocs and KeyDocs belong together, but only one is given")
	}
	b := q.dims[0]
	m = [3]*header{t.mask("KeyLengths", o.KeyLengths, b), t.mask("QueryDocs", o.QueryDocs, b, q.dims[1]), t.mask("KeyDocs", o.KeyDocs, b, k.dims[1])}
	if m[0] != nil && t.dev.Host() {
		n := Data[int64](m[0].tensor())
		if i := kernel.CheckIndex(n, k.dims[1]+1); i >= 0 {
			fail("cross_attention", []Shape{q.shape(), k.shape()}, "KeyLengths of sequence %d is %d, not in [0,%d]", i, n[i], k.dims[1])
		}
	}
	return m
}

// mask returns x, which has to be whole numbers of shape dims, as contiguous Int64.
func (t *Tape) mask(name string, x Tensor, dims ...int) *header {
	if x.IsZero() {
		return nil
	}
	h, want := t.arg(x), header{dtype: Int64}
	want.setDims(dims)
	if !h.alike(&want) || h.dtype != Int32 && h.dtype != Int64 {
		fail("cross_attention", []Shape{h.shape()}, "%s has to be %v, or int32 of this shape", name, want.shape())
	}
	if h.dtype != Int64 {
		h = t.alias(h).tensor().Cast(Int64).h
	}
	return t.contiguous(h)
}
