package tensor

func init() {
	define(OpCrossAttentionLSE, OpSpec{Name: "cross_attention_lse", VJP: crossAttentionLSEVJP})
}

// CrossAttentionLSE is CrossAttention that also returns ln Σ exp(score) over the keys that a query sees, lse [B, heads, Tq]: Float64
// where q is, else Float32; -Inf for a query that sees none. Both results are differentiable. It is what attention over parts of the
// keys is merged by (Liu et al., "Ring Attention with Blockwise Transformers", 2023): of parts 1 and 2, the whole has
// lse = ln(exp(lse1) + exp(lse2)) and out = exp(lse1-lse)·out1 + exp(lse2-lse)·out2. So the keys may be those of a part of each sequence
// here, on a step that has such parts too; Offset is then the position of the first query less that of the first key.
func CrossAttentionLSE(q, k, v Tensor, headDim int, o AttentionOptions) (out, lse Tensor) {
	return crossAttention(q, k, v, headDim, o, true)
}

// recLSE returns lse under a name of its own, whose node is the one behind that of out.
func (t *Tape) recLSE(lse, out *header) Tensor {
	y := t.alias(lse)
	t.rec(OpCrossAttentionLSE, y, out)
	return y.tensor()
}

// crossAttentionLSEVJP leaves the gradient of the sums to the node of the attention, which was recorded before it and is
// differentiated next. That one has a gradient then, though maybe of 0.
func crossAttentionLSEVJP(t *Tape, n *Node, _ uint8) {
	of := t.node(t.at - 1)
	of.aux[1], n.out.grad = n.out.grad, nil
	if of.out.grad == nil && of.out.more == nil {
		t.addGrad(of.out, t.full(of.out, 0))
	}
}
