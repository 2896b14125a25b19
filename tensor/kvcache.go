package tensor

// KVCache holds the keys and values of the tokens that a model has seen, of one layer, so that a further token costs one row of
// each and not those of the whole sequence. Its memory is made once, for the longest sequence, so it grows without a copy; where the
// system gives memory when it is first written to, as for the CPU, a short sequence takes little. It is for tapes with NoGrad.
type KVCache struct {
	k, v Tensor // [batch, positions, width]
	n    int
}

// NewKVCache returns an empty cache on dev for sequences of up to so many positions. A position has keys and values of width
// features each, all heads together.
func NewKVCache(dev Device, dtype DType, batch, positions, width int) *KVCache {
	return &KVCache{k: New(dev, dtype, batch, positions, width), v: New(dev, dtype, batch, positions, width)}
}

// Len returns how many tokens of each sequence the cache holds: the position of the next one.
func (c *KVCache) Len() int { return c.n }

// Positions returns how many tokens of each sequence the cache has room for.
func (c *KVCache) Positions() int { return c.k.Dim(1) }

// Truncate keeps the first n tokens. Truncate(0) makes the cache ready for other sequences.
func (c *KVCache) Truncate(n int) {
	if n < 0 || n > c.n {
		fail("KVCache.Truncate", []Shape{c.k.Shape()}, "to %d tokens of %d", n, c.n)
	}
	c.n = n
}

// Attention appends keys and values k and v [batch, time, kvHeads·headDim] of the next tokens, and returns causal CrossAttention of
// their queries q [batch, time, heads·headDim] over all tokens that the cache holds now. A full cache is a Failure, and so is a tape
// that records: a cache has no gradient.
func (c *KVCache) Attention(q, k, v Tensor, headDim int) Tensor {
	t := tapeOf("KVCache.Attention", q, k, v)
	a, b := t.arg(k), t.arg(v)
	switch r := t.rows; {
	case t.recording():
		fail("KVCache.Attention", []Shape{c.k.Shape()}, "the tape records for a gradient, which a cache has not: make it with NoGrad")
	case !t.reaches(c.k.hdr()):
		fail("KVCache.Attention", []Shape{c.k.Shape()}, "the cache is on %v, the tape on %v", c.k.Device(), t.dev)
	case r.seq < r.Seq.Total:
		fail("KVCache.Attention", []Shape{c.k.Shape()}, "the step has %v: a cache is of whole sequences", r)
	}
	t.sameDType("KVCache.Attention", c.k.hdr(), a, b)
	t.mustShape("KVCache.Attention", a.rank == 3 && a.alike(b) && a.dims[0] == c.k.Dim(0) && a.dims[2] == c.k.Dim(2) &&
		q.Rank() == 3 && q.Dim(1) == a.dims[1], t.arg(q), a, b, c.k.hdr())
	first, end := c.n, c.n+a.dims[1]
	if end > c.Positions() {
		fail("KVCache.Attention", []Shape{a.shape()}, "the cache is full: %d tokens and %d more, room for %d", first, a.dims[1], c.Positions())
	}
	t.region(OpCopy, a, t.arg(c.k), 1, first, false)
	t.region(OpCopy, b, t.arg(c.v), 1, first, false)
	out := CrossAttention(q, c.k, c.v, headDim, AttentionOptions{Causal: true, Offset: first})
	c.n = end
	return out
}
