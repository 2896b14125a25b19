package tensor

import (
	"cmp"
	"math"
)

// AttentionScores says how scores are computed, and which of the keys before a query it sees. Zero is PyTorch's
// scaled_dot_product_attention.
type AttentionScores struct {
	Window  int     // with Causal: a query sees only the last so many positions, of which its own is one; 0: all
	Scale   float64 // of the scores; 0: 1/√headDim
	SoftCap float64 // a score s becomes SoftCap·tanh(s/SoftCap), before any mask (Gemma 2, 2024); 0: s
}

// AttentionOptions says which keys a query sees, how scores are computed, and the dropout of probabilities.
type AttentionOptions struct {
	Causal bool // position i sees positions 0 to i+Offset
	Offset int  // of CrossAttention: see there
	AttentionScores
	Drop  float64 // drops probabilities as [Tensor.Dropout] does, on a tape in training
	Layer uint64  // hash of the dropout layer's name
	At    Region  // the heads that this rank has (Cols), if it has only a part of them; only dropout uses it

	// KeyLengths [B], Int32 or Int64, is for CrossAttention: only the first KeyLengths[i] keys of sequence i count. The rest is padding: it
	// is never read, and its gradient is 0.
	KeyLengths Tensor
	// QueryDocs [B, Tq] and KeyDocs [B, Tk], Int32 or Int64, are for CrossAttention: the numbers of the documents that were packed into a
	// sequence. A query sees only the keys of its own document.
	QueryDocs, KeyDocs Tensor
}

// Attention is scaled dot-product self-attention (Vaswani et al. 2017; PyTorch's scaled_dot_product_attention). qkv [B, T, 3·heads·headDim]
// holds the queries, keys and values of all heads, in this order. The result is softmax(q·kᵀ/√headDim)·v of all heads, joined: [B, T,
// heads·headDim]. The T×T matrix of probabilities is never whole in memory (Dao et al., "FlashAttention", 2022).
func Attention(qkv Tensor, headDim int, o AttentionOptions) Tensor {
	t := tapeOf("attention", qkv)
	in := t.contiguous(t.arg(qkv))
	if headDim <= 0 || in.ndim != 3 || in.dims[2]%(3*headDim) != 0 {
		fail("attention", these(in), "needs [batch, time, 3·heads·%d]", headDim)
	}
	if o.check("attention"); o.Offset != 0 {
		fail("attention", nil, "an Offset has no meaning where queries and keys are of the same positions")
	}
	if o.masked() {
		fail("attention", nil, "masks are CrossAttention's, to which queries, keys and values are given apart")
	}
	if r := batchOf(t.rows, in); r.Positions != 0 && r.Positions < r.Seq.Total {
		fail("attention", these(in), "the step has %v: a position would see this rank's part of its sequence only", r)
	}
	b, n, width := in.dims[0], in.dims[1], in.dims[2]/3
	out, lse := t.newTensor(in.dtype, b, n, width), t.newTensor(statType(in.dtype), b, width/headDim, n)
	f := o.kernel(headDim)
	if t.training && o.Drop > 0 {
		f.drop(o.Drop, t.RandomKey(o.Layer), t.place("attention", in, lse.n*n, width/headDim, n*n, o.At))
	}
	t.attention(OpAttention, &f, []*header{out, lse}, []*header{in})
	node := t.rec(OpAttention, out, in)
	if node != nil {
		node.I, node.F, node.key = f.I, f.F, f.key
	}
	t.keepStats(node, lse)
	return out.tensor()
}

// attention holds the arguments of the attention kernels. I = head dimension, causal, for dropout First, Stride and Elems of kernel.Rows,
// window, nothing, offset; F = scale, drop, softCap.
type attention struct {
	I   [8]int
	F   [3]float64
	key uint64
}

func (o *AttentionOptions) kernel(headDim int) attention {
	return attention{I: [8]int{0: headDim, 1: b2i(o.Causal), 5: o.Window, 7: o.Offset},
		F: [3]float64{cmp.Or(o.Scale, 1/math.Sqrt(float64(headDim))), 0, o.SoftCap}}
}

func (f *attention) drop(p float64, key uint64, place [8]int) {
	f.F[1], f.key = p, key
	copy(f.I[2:5], place[:3])
}

// attention launches op; ins[0] is qkv.
func (t *Tape) attention(op Op, f *attention, outs, ins []*header) {
	in := ins[0]
	if in.n == 0 {
		return
	}
	a := t.Args(op, in.dtype).operands(outs, ins)
	a.Dim[0], a.Dim[1], a.Dim[2] = in.dims[0], in.dims[1], in.dims[2]
	f.set(a)
	t.Launch()
}

func (f *attention) set(a *Args) {
	a.I, a.Key = f.I, f.key
	copy(a.F[:], f.F[:])
}

func attentionVJP(t *Tape, n *Node, _ uint8) {
	in := n.in[0]
	d := t.newLike(in)
	t.attention(OpAttentionGrad, &attention{n.I, n.F, n.key}, []*header{d}, []*header{in, n.out, n.out.grad, n.aux[0]})
	t.addGrad(in, d)
}
