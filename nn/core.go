package nn

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Core is the part of causal self-attention where positions meet, between the layers that compute queries, keys and values and the one
// behind. Where ranks divide sequences, package cp sets the Functions. All tensors are [batch, time, features].
type Core struct {
	Spread, Join tensor.Function // Spread is applied to queries, keys and values, before attention, and Join to its result; nil: nothing
	Mix          tensor.Function // attention of queries, keys, values and documents, in place of ops.CrossAttention; nil: that

	Scores ops.AttentionScores // what is not 0 is refused beside a Mix
}

func (c *Core) builtIn() bool { return c.Spread == nil && c.Join == nil && c.Mix == nil }

// Attend returns the outputs of heads of headDim features, joined. rope turns queries and keys; nil: nothing does. With a cache, queries
// also see the tokens in it, which are before them; k and v are added to it. docs, Int32 or Int64, has the numbers of the documents that
// were packed into a sequence, in which alone a position sees others, for all of its positions; none: a sequence is one.
func (c *Core) Attend(q, k, v T, headDim int, rope *Rotary, cache *ops.KVCache, docs T) T {
	if !docs.IsZero() && cache != nil {
		fail("Attend", "packed documents need no cache: with one, attention has no masks")
	}
	q, k, v = apply(c.Spread, q), apply(c.Spread, k), apply(c.Spread, v)
	if rope != nil {
		first := 0
		if cache != nil {
			first = cache.Len()
		}
		q, k = rope.Forward(q, first), rope.Forward(k, first)
	}
	switch {
	case cache != nil:
		return apply(c.Join, cache.Attention(q, k, v, headDim, c.Scores))
	case c.Mix != nil && c.Scores != ops.AttentionScores{}:
		fail("Attention", "%s computes no windows, no caps and no other scale of scores: %+v", c.Mix.Name(), c.Scores)
	case c.Mix != nil && !docs.IsZero():
		return apply(c.Join, tapeOf(q).Apply(c.Mix, q, k, v, docs))
	case c.Mix != nil:
		return apply(c.Join, tapeOf(q).Apply(c.Mix, q, k, v))
	}
	return apply(c.Join, ops.CrossAttention(q, k, v, headDim, ops.AttentionOptions{
		Causal: true, AttentionScores: c.Scores, QueryDocs: docs, KeyDocs: docs}))
}

// apply returns f of x, or x if f is nil.
func apply(f tensor.Function, x T) T {
	if f == nil {
		return x
	}
	return tapeOf(x).Apply(f, x)
}
