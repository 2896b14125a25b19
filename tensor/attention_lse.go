package tensor

func init() {
	define(OpCrossAttentionLSE, OpSpec{Name: "cross_attention_lse", VJP: crossAttentionLSEVJP})
}

// CrossAttentionLSE is CrossAttention that also returns lse [B, heads, Tq] = ln Σ exp(score) over the keys that a query sees: Float64 if q
// is, else Float32; -Inf for a query that sees no key. Both results are differentiable. With lse, the attention over parts of the keys can
// be merged (Liu et al., "Ring Attention with Blockwise Transformers", 2023): for parts 1 and 2, lse = ln(exp(lse1) + exp(lse2)) and out =
// exp(lse1-lse)·out1 + exp(lse2-lse)·out2. So, unlike in CrossAttention, the keys may be a part of each sequence on a step that has parts
// of sequences. Offset is then the position of the first query minus that of the first key.
func CrossAttentionLSE(q, k, v Tensor, headDim int, o AttentionOptions) (out, lse Tensor) {
	return crossAttention(q, k, v, headDim, o, true)
}

// CrossAttentionGrad returns what keys k and values v contribute to the gradients of queries, and their own, for the gradient g of out. out
// and lse are the attention of q over all keys, of which k and v may be a part: the sum over the parts is the gradient. It is for the
// Backward of a Function, and has no gradient itself. Masks and Offset are those of CrossAttentionLSE.
func CrossAttentionGrad(q, k, v, out, g, lse Tensor, headDim int, o AttentionOptions) (dq, dk, dv Tensor) {
	const op = "cross_attention_grad"
	t := tapeOf(op, q, k, v, out, g, lse)
	a, b, c := t.crossOperands(q, k, v, headDim)
	y, dy, l := t.contiguous(t.arg(out)), t.contiguous(t.arg(g)), t.contiguous(t.arg(lse))
	o.check(op)
	mustBeAlike(op, a, "the queries", y, "the output", a, y)
	mustBeAlike(op, y, "the output", dy, "its gradient", y, dy)
	want := header{dtype: statType(a.dtype)}
	if want.setDims([]int{a.dims[0], a.dims[2] / headDim, a.dims[1]}); !l.alike(&want) || o.Drop > 0 {
		fail(op, these(a, l), "lse has to be %v, and nothing is dropped", want.shape())
	}
	m := t.masks(&o, a, b)
	f := o.kernel(headDim)
	grads := t.crossAttentionGrads(&f, []*header{a, b, c, y, dy, l, m[0], m[1], m[2], nil})
	return grads[0].tensor(), grads[1].tensor(), grads[2].tensor()
}

// recLSE returns lse as an output of its own. Its node comes after the one of out.
func (t *Tape) recLSE(lse, out *header) Tensor {
	y := t.alias(lse)
	t.rec(OpCrossAttentionLSE, y, out)
	return y.tensor()
}

// crossAttentionLSEVJP stores the gradient of lse for the node of the attention. That node was recorded before this one, so it is
// differentiated next. It must have a gradient then, though this may be 0.
func crossAttentionLSEVJP(t *Tape, n *Node, _ uint8) {
	of := t.node(t.at - 1)
	of.aux[1], n.out.grad = n.out.grad, nil
	if of.out.grad == nil && of.out.more == nil {
		t.addGrad(of.out, t.full(of.out, 0))
	}
}
