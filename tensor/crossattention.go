package tensor

import "math"

func init() {
	define(OpCrossAttention, OpSpec{Name: "cross_attention", Saves: 63 | SaveOut, VJP: crossAttentionVJP,
		CPU: orBF16(withHalf(floats(crossAttentionKernel(attention32), crossAttentionKernel(attention64)), crossAttentionHalf()),
			crossAttentionBF16())})
	define(OpCrossAttentionGrad, OpSpec{Name: "cross_attention_grad", Const: true,
		CPU: orBF16(floats(crossAttentionGradKernel(attention32), crossAttentionGradKernel(attention64)), crossAttentionGradBF16())})
}

// CrossAttention is Attention of queries q [B, Tq, heads·headDim] over keys and values k and v [B, Tk, kvHeads·headDim], which may have
// another length or another number of heads (PyTorch's scaled_dot_product_attention with enable_gqa). heads/kvHeads neighbouring heads of
// queries share one head of keys and values (Ainslie et al., "GQA", 2023). It returns [B, Tq, heads·headDim]. With Causal, query i sees
// keys 0 to i+Offset. The masks of the options hide more keys; masks have no gradient. A query that sees no key has the output 0 and gives
// no gradient. If the step has a part of each sequence (Rows.Seq), and the keys are those of whole sequences, the first position of the
// part is added to Offset.
func CrossAttention(q, k, v Tensor, headDim int, o AttentionOptions) Tensor {
	out, _ := crossAttention(q, k, v, headDim, o, false)
	return out
}

// crossAttention is CrossAttention or, if both is set, CrossAttentionLSE.
func crossAttention(q, k, v Tensor, headDim int, o AttentionOptions, both bool) (y, sums Tensor) {
	t := tapeOf("cross_attention", q, k, v)
	a, b, c := t.crossOperands(q, k, v, headDim)
	o.check("cross_attention")
	m := t.masks(&o, a, b)
	heads := a.dims[2] / headDim
	out, lse := t.newLike(a), t.newTensor(statType(a.dtype), a.dims[0], heads, a.dims[1])
	f := o.kernel(headDim)
	f.I[7] += t.keysBefore(a, b, both)
	if t.training && o.Drop > 0 {
		if r := t.rows; r.Positions > 0 && a.dims[1] == r.Positions && r.Positions < r.Seq.Total {
			fail("cross_attention", these(a), "the step has %v: probabilities of a part of the positions cannot be dropped", r)
		}
		f.drop(o.Drop, t.RandomKey(o.Layer), t.place("cross_attention", a, lse.n*b.dims[1], heads, a.dims[1]*b.dims[1], o.At))
	}
	if b.n == 0 {
		t.fill(out, 0)
		t.fill(lse, math.Inf(-1))
	} else {
		t.crossAttention(OpCrossAttention, &f, []*header{out, lse}, []*header{a, b, c, m[0], m[1], m[2]}, a, b)
	}
	node := t.rec(OpCrossAttention, out, a, b, c, m[0], m[1], m[2])
	if node != nil {
		node.I, node.F, node.key = f.I, f.F, f.key
	}
	if both {
		sums = t.recLSE(lse, out)
	}
	t.keepStats(node, lse)
	return out.tensor(), sums
}

// crossOperands checks queries, keys and values, and returns them contiguous.
func (t *Tape) crossOperands(q, k, v Tensor, headDim int) (a, b, c *header) {
	a, b, c = t.contiguous(t.arg(q)), t.contiguous(t.arg(k)), t.contiguous(t.arg(v))
	t.sameDType("cross_attention", a, b, c)
	const op = "cross_attention"
	mustShape(op, a.ndim == 3 && b.ndim == 3, "wants queries, keys and values [batch, time, heads·headDim]", a, b, c)
	mustBeAlike(op, b, "the keys", c, "the values", a, b, c)
	mustMatch(op, a, 0, "the queries", b, 0, "the keys", a, b, c)
	if width := b.dims[2]; headDim <= 0 || width == 0 || width%headDim != 0 || a.dims[2]%width != 0 {
		fail(op, these(a, b, c), "the keys' %d features must be heads of %d each, and the queries' %d a multiple of them",
			width, headDim, a.dims[2])
	}
	return a, b, c
}

// crossAttention launches op for queries of the shape of q and keys of the shape of k.
func (t *Tape) crossAttention(op Op, f *attention, outs, ins []*header, q, k *header) {
	if q.n == 0 {
		return
	}
	a := t.Args(op, q.dtype).operands(outs, ins)
	a.Dim = [6]int{q.dims[0], q.dims[1], q.dims[2], k.dims[1], k.dims[2]}
	f.set(a)
	t.Launch()
}

func crossAttentionVJP(t *Tape, n *Node, need uint8) {
	grads := t.crossAttentionGrads(&attention{n.I, n.F, n.key},
		[]*header{n.in[0], n.in[1], n.in[2], n.out, n.out.grad, n.aux[0], n.in[3], n.in[4], n.in[5], n.aux[1]})
	for i, g := range grads {
		if need>>i&1 != 0 {
			t.addGrad(n.in[i], g)
		} else {
			t.release(g)
		}
	}
}

// crossAttentionGrads returns the gradients of queries, keys and values, which are the first of ins.
func (t *Tape) crossAttentionGrads(f *attention, ins []*header) (grads [3]*header) {
	q, k := ins[0], ins[1]
	for i := range grads {
		grads[i] = t.newLike(ins[i])
	}
	if q.n == 0 || k.n == 0 {
		for _, g := range grads {
			t.fill(g, 0)
		}
	} else {
		t.crossAttention(OpCrossAttentionGrad, f, grads[:], ins, q, k)
	}
	return grads
}
