package ops

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// KVCache holds the keys and values of one layer for all tokens that a model has seen, so that a new token adds one row to each and does
// not compute those of the whole sequence. Its memory is made once, for the longest sequence, so it grows without a copy. The CPU's system
// gives pages when they are first written, so a short sequence uses little. It is for NoGrad tapes.
type KVCache struct {
	k, v      tensor.Tensor // [batch, positions, width], made with the first tokens
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
		panic(&tensor.Failure{Op: "KVCache.Truncate", Err: fmt.Errorf("to %d tokens of %d", n, c.n)})
	}
	c.n = n
}

// Attention appends keys and values k and v [batch, time, kvHeads·headDim] of the next tokens. It returns causal CrossAttention of their
// queries q [batch, time, heads·headDim] over all tokens in the cache. A full cache is a Failure, and so is a
// tape that records: a cache has no gradient.
func (c *KVCache) Attention(q, k, v tensor.Tensor, headDim int, s AttentionScores) tensor.Tensor {
	t, in := OpCrossAttention.Tape(q, k, v), []tensor.Tensor{q, k, v}
	if k.NDim() != 3 || q.NDim() != 3 {
		OpCrossAttention.Fail(in, "wants queries, keys and values [batch, time, heads·headDim]")
	}
	mustBeAlike(OpCrossAttention, k, "the keys", v, "the values", in...)
	mustMatch(OpCrossAttention, q, 1, "the queries", k, 1, "the keys", in...)
	first, end := c.n, c.n+k.Dim(1)
	c.check(t, k, end)
	if c.k.IsZero() || c.n == 0 && !(c.k.DType() == k.DType() && c.k.Dim(0) == k.Dim(0) && c.k.Dim(2) == k.Dim(2) && t.Reaches(c.k)) {
		c.k = tensor.New(t.Device(), k.DType(), k.Dim(0), c.positions, k.Dim(2))
		c.v = tensor.New(t.Device(), k.DType(), k.Dim(0), c.positions, k.Dim(2))
	}
	if !t.Reaches(c.k) {
		failCache(k, "the cache is on %v, the tape on %v", c.k.Device(), t.Device())
	}
	OpCrossAttention.SameDType(c.k, k, v)
	mustMatch(OpCrossAttention, k, 0, "the keys", c.k, 0, "the cache", k, c.k)
	mustMatch(OpCrossAttention, k, 2, "the keys", c.k, 2, "the cache", k, c.k)
	t.CopyInto(c.k, 1, first, k)
	t.CopyInto(c.v, 1, first, v)
	out := CrossAttention(q, c.held(t, c.k, end), c.held(t, c.v, end), headDim,
		AttentionOptions{Causal: true, Offset: first, AttentionScores: s})
	c.n = end
	return out
}

// check fails if keys k, up to position end, do not fit the tape or the cache.
func (c *KVCache) check(t *tensor.Tape, k tensor.Tensor, end int) {
	switch r := t.Batch(tensor.Tensor{}); {
	case t.Records():
		failCache(k, "the tape records gradients, which a cache does not support: make the tape with NoGrad")
	case r.Positions < r.Seq.Total:
		failCache(k, "the step has %v: a cache is of whole sequences", r)
	case end > c.positions:
		failCache(k, "the cache is full: %d tokens and %d more, room for %d", c.n, k.Dim(1), c.positions)
	}
}

func failCache(k tensor.Tensor, format string, a ...any) {
	panic(&tensor.Failure{Op: "KVCache.Attention", Shapes: []tensor.Shape{k.Shape()}, Err: fmt.Errorf(format, a...)})
}

// held returns a view of the keys or values up to position end.
func (c *KVCache) held(t *tensor.Tape, x tensor.Tensor, end int) tensor.Tensor {
	if x.Dim(0) != 1 {
		end = x.Dim(1)
	}
	return t.View(x, x.Dim(0), end, x.Dim(2))
}
