package ops

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// CrossAttention is Attention of queries q [B, Tq, heads·headDim] over keys and values k and v [B, Tk, kvHeads·headDim], which may have
// another length or another number of heads (PyTorch's scaled_dot_product_attention with enable_gqa). heads/kvHeads neighbouring heads of
// queries share one head of keys and values (Ainslie et al., "GQA", 2023). It returns [B, Tq, heads·headDim]. With Causal, query i sees
// keys 0 to i+Offset. The masks of the options hide more keys; masks have no gradient. A query that sees no key has the output 0 and gives
// no gradient. If the step has a part of each sequence (Rows.Seq), and the keys are those of whole sequences, the first position of the
// part is added to Offset.
func CrossAttention(q, k, v tensor.Tensor, headDim int, o AttentionOptions) tensor.Tensor {
	out, _ := crossAttention(q, k, v, headDim, o, false)
	return out
}

// CrossAttentionLSE is CrossAttention that also returns lse [B, heads, Tq] = ln Σ exp(score) over the keys that a query sees: Float64 if q
// is, else Float32; -Inf for a query that sees no key. Both results are differentiable. With lse, the attention over parts of the keys can
// be merged (Liu et al., "Ring Attention with Blockwise Transformers", 2023): for parts 1 and 2, lse = ln(exp(lse1) + exp(lse2)) and out =
// exp(lse1-lse)·out1 + exp(lse2-lse)·out2. So, unlike in CrossAttention, the keys may be a part of each sequence on a step that has parts
// of sequences. Offset is then the position of the first query minus that of the first key.
func CrossAttentionLSE(q, k, v tensor.Tensor, headDim int, o AttentionOptions) (out, lse tensor.Tensor) {
	return crossAttention(q, k, v, headDim, o, true)
}

// crossAttention is CrossAttention or, if both is set, CrossAttentionLSE.
func crossAttention(q, k, v tensor.Tensor, headDim int, o AttentionOptions, both bool) (out, sums tensor.Tensor) {
	t := OpCrossAttention.Tape(q, k, v)
	q, k, v = crossOperands(t, q, k, v, headDim, o.Unpadded != nil)
	o.check(OpCrossAttention)
	heads, f, st := q.Dim(-1)/headDim, o.kernel(headDim), statType(q.DType())
	var lse tensor.Tensor
	var m [3]tensor.Tensor
	if u := o.Unpadded; u != nil {
		u.check(t, &o, both, q, k, v)
		m[0], lse = u.starts, t.New(st, heads, q.Dim(0))
	} else {
		m, lse = o.masks(t, q, k), t.New(st, q.Dim(0), heads, q.Dim(1))
		f.I[7] += keysBefore(t, q, k, both)
	}
	out = t.NewLike(q)
	if t.Training() && o.Drop > 0 {
		if r := t.Batch(tensor.Tensor{}); r.Positions > 0 && q.Dim(1) == r.Positions && r.Positions < r.Seq.Total {
			OpCrossAttention.Fail([]tensor.Tensor{q}, "the step has %v: probabilities of a part of the positions cannot be dropped", r)
		}
		f.drop(t, &o, t.RandomPlace(OpCrossAttention, q, lse.Len()*k.Dim(1), heads, q.Dim(1)*k.Dim(1), o.At))
	}
	if k.Len() == 0 {
		t.Fill(out, 0)
		t.Fill(lse, math.Inf(-1))
	} else {
		f.launch(t, OpCrossAttention, q, k, []tensor.Tensor{out, lse}, []tensor.Tensor{q, k, v, m[0], m[1], m[2]})
	}
	node := t.Record(OpCrossAttention, out, q, k, v, m[0], m[1], m[2])
	f.note(node)
	if both {
		sums = t.Second(lse, out)
	}
	t.Save(node, lse)
	return out, sums
}

// crossOperands checks queries, keys and values, and returns them contiguous.
func crossOperands(t *tensor.Tape, q, k, v tensor.Tensor, headDim int, unpadded bool) (a, b, c tensor.Tensor) {
	a, b, c = t.Packed(q), t.Packed(k), t.Packed(v)
	in := []tensor.Tensor{a, b, c}
	OpCrossAttention.SameDType(in...)
	if want := 3 - b2i(unpadded); a.NDim() != want || b.NDim() != want {
		OpCrossAttention.Fail(in, "wants queries, keys and values [batch, time, heads·headDim], or, with Unpadded, [tokens, heads·headDim]")
	}
	mustBeAlike(OpCrossAttention, b, "the keys", c, "the values", in...)
	mustMatch(OpCrossAttention, a, 0, "the queries", b, 0, "the keys", in...)
	if width := b.Dim(-1); headDim <= 0 || width == 0 || width%headDim != 0 || a.Dim(-1)%width != 0 {
		OpCrossAttention.Fail(in, "the keys' %d features must be heads of %d each, and the queries' %d a multiple of them",
			width, headDim, a.Dim(-1))
	}
	return a, b, c
}

func crossAttentionVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	f := noted(n)
	grads := f.grads(t, [10]tensor.Tensor{n.In(0), n.In(1), n.In(2), n.Out(), n.Grad(), n.Saved(0), n.In(3), n.In(4), n.In(5), n.Saved(1)})
	for i, g := range grads {
		if need>>i&1 != 0 {
			t.AddGrad(n, i, g)
		} else {
			t.Release(g)
		}
	}
}

// grads returns the gradients of queries, keys and values, which are the first of in.
func (f *attention) grads(t *tensor.Tape, in [10]tensor.Tensor) (grads [3]tensor.Tensor) {
	q, k := in[0], in[1]
	t.NewLikes(grads[:], in[:3])
	if q.Len() == 0 || k.Len() == 0 {
		for _, g := range grads {
			t.Fill(g, 0)
		}
	} else {
		f.launch(t, OpCrossAttentionGrad, q, k, grads[:], in[:])
	}
	return grads
}

// CrossAttentionGrad returns what keys k and values v contribute to the gradients of queries, and their own, for the gradient g of out. out
// and lse are the attention of q over all keys, of which k and v may be a part: the sum over the parts is the gradient. It is for the
// Backward of a Function, and has no gradient itself. Masks and Offset are those of CrossAttentionLSE.
func CrossAttentionGrad(q, k, v, out, g, lse tensor.Tensor, headDim int, o AttentionOptions) (dq, dk, dv tensor.Tensor) {
	t := OpCrossAttentionGrad.Tape(q, k, v, out, g, lse)
	q, k, v = crossOperands(t, q, k, v, headDim, false)
	out, g, lse = t.Packed(out), t.Packed(g), t.Packed(lse)
	o.check(OpCrossAttentionGrad)
	mustBeAlike(OpCrossAttentionGrad, q, "the queries", out, "the output", q, out)
	mustBeAlike(OpCrossAttentionGrad, out, "the output", g, "its gradient", out, g)
	want, st := [3]int{q.Dim(0), q.Dim(2) / headDim, q.Dim(1)}, statType(q.DType())
	if d, n := dimsOf(lse); lse.DType() != st || !slices.Equal(d[:n], want[:]) || o.Drop > 0 || o.Unpadded != nil {
		OpCrossAttentionGrad.Fail([]tensor.Tensor{q, lse}, "lse has to be %v, and nothing is dropped, neither values nor padding",
			tensor.Shape{DType: st, Dims: slices.Clone(want[:])})
	}
	m, f := o.masks(t, q, k), o.kernel(headDim)
	d := f.grads(t, [10]tensor.Tensor{q, k, v, out, g, lse, m[0], m[1], m[2]})
	return d[0], d[1], d[2]
}
