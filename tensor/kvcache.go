package tensor

// KVCache holds the keys and values of one layer for all tokens that a model has seen, so that a new token adds one row to each and does
// not compute those of the whole sequence. Its memory is made once, for the longest sequence, so it grows without a copy. The CPU's system
// gives pages when they are first written, so a short sequence uses little. It is for NoGrad tapes.
type KVCache struct {
	k, v      Tensor // [batch, positions, width], made with the first tokens
	n         int
	positions int
}

// NewKVCache returns an empty cache for sequences of up to so many positions. The first keys decide the number of sequences, the type and
// the device, also after Truncate(0).
func NewKVCache(positions int) *KVCache { return &KVCache{positions: positions} }

// Len returns the number of tokens of each sequence in the cache, which is the position of the next one.
func (c *KVCache) Len() int { return c.n }

// Truncate keeps the first n tokens. After Truncate(0) the cache can be used for other sequences.
func (c *KVCache) Truncate(n int) {
	if n < 0 || n > c.n {
		fail("KVCache.Truncate", nil, "to %d tokens of %d", n, c.n)
	}
	c.n = n
}

// Attention appends keys and values k and v [batch, time, kvHeads·headDim] of the next tokens. It returns causal CrossAttention of their
// queries q [batch, time, heads·headDim] over all tokens in the cache. A full cache is a Failure, and so is a
// tape that records: a cache has no gradient.
func (c *KVCache) Attention(q, k, v Tensor, headDim int, s AttentionScores) Tensor {
	const op = "KVCache.Attention"
	t := tapeOf(op, q, k, v)
	a, b := t.arg(k), t.arg(v)
	in := [3]*header{t.arg(q), a, b}
	mustShape(op, a.ndim == 3 && in[0].ndim == 3, "wants queries, keys and values [batch, time, heads·headDim]", in[:]...)
	mustBeAlike(op, a, "the keys", b, "the values", in[:]...)
	mustMatch(op, in[0], 1, "the queries", a, 1, "the keys", in[:]...)
	first, end := c.n, c.n+a.dims[1]
	switch r := t.rows; {
	case t.recording():
		fail(op, these(a), "the tape records gradients, which a cache does not support: make the tape with NoGrad")
	case r.Positions < r.Seq.Total:
		fail(op, these(a), "the step has %v: a cache is of whole sequences", r)
	case end > c.positions:
		fail(op, these(a), "the cache is full: %d tokens and %d more, room for %d", first, a.dims[1], c.positions)
	case c.k.IsZero() || c.n == 0 && !(c.k.DType() == a.dtype && c.k.Dim(0) == a.dims[0] && c.k.Dim(2) == a.dims[2] && t.reaches(c.k.h)):
		c.k, c.v = New(t.dev, a.dtype, a.dims[0], c.positions, a.dims[2]), New(t.dev, a.dtype, a.dims[0], c.positions, a.dims[2])
	case !t.reaches(c.k.h):
		fail(op, these(a), "the cache is on %v, the tape on %v", c.k.Device(), t.dev)
	}
	t.sameDType(op, c.k.h, a, b)
	mustMatch(op, a, 0, "the keys", c.k.h, 0, "the cache", a, c.k.h)
	mustMatch(op, a, 2, "the keys", c.k.h, 2, "the cache", a, c.k.h)
	t.region(OpCopy, a, c.k.h, 1, first, false)
	t.region(OpCopy, b, c.v.h, 1, first, false)
	out := CrossAttention(q, c.held(t, c.k, end), c.held(t, c.v, end), headDim,
		AttentionOptions{Causal: true, Offset: first, AttentionScores: s})
	c.n = end
	return out
}

// held returns a view of the keys or values up to position end.
func (c *KVCache) held(t *Tape, x Tensor, end int) Tensor {
	h := t.alias(x.h)
	if h.dims[0] == 1 {
		h.dims[1] = end
		h.setDims(h.dims[:h.ndim])
	}
	return h.tensor()
}
