package ops

import (
	"cmp"
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// The operations of Attention and CrossAttention, and of their gradients.
var OpAttention, OpAttentionGrad, OpCrossAttention, OpCrossAttentionGrad tensor.Op

func init() {
	OpAttention = registerAll(tensor.OpSpec{Name: "attention", Saves: 1 | tensor.SaveOut, Rows: tensor.RowsFirst, VJP: attentionVJP},
		attentionKernels(false))
	OpAttentionGrad = registerAll(tensor.OpSpec{Name: "attention_grad", Const: true}, attentionKernels(true))
	OpCrossAttention = registerAll(tensor.OpSpec{Name: "cross_attention", Saves: 63 | tensor.SaveOut, Rows: tensor.RowsPaired,
		VJP: crossAttentionVJP}, withFewQueries(attentionKernels(false)))
	OpCrossAttentionGrad = registerAll(tensor.OpSpec{Name: "cross_attention_grad", Const: true}, attentionKernels(true))
}

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
	Drop  float64       // drops probabilities as [Dropout] does, on a tape in training
	Layer uint64        // hash of the dropout layer's name
	At    tensor.Region // the heads that this rank has (Cols), if it has only a part of them; only dropout uses it

	// KeyLengths [B], Int32 or Int64, is for CrossAttention: only the first KeyLengths[i] keys of sequence i count. The rest is padding: it
	// is never read, and its gradient is 0.
	KeyLengths tensor.Tensor
	// QueryDocs [B, Tq] and KeyDocs [B, Tk], Int32 or Int64, are for CrossAttention: the numbers of the documents that were packed into a
	// sequence. A query sees only the keys of its own document.
	QueryDocs, KeyDocs tensor.Tensor
	// Unpadded is for CrossAttention of sequences that lie one behind the other: q, k and v are [tokens, features].
	Unpadded *Unpadded
}

// Attention is scaled dot-product self-attention (Vaswani et al. 2017; PyTorch's scaled_dot_product_attention). qkv [B, T, 3·heads·headDim]
// holds the queries, keys and values of all heads, in this order. The result is softmax(q·kᵀ/√headDim)·v of all heads, joined: [B, T,
// heads·headDim]. The T×T matrix of probabilities is never whole in memory (Dao et al., "FlashAttention", 2022).
func Attention(qkv tensor.Tensor, headDim int, o AttentionOptions) tensor.Tensor {
	t := OpAttention.Tape(qkv)
	in := t.Packed(qkv)
	if headDim <= 0 || in.NDim() != 3 || in.Dim(2)%(3*headDim) != 0 {
		OpAttention.Fail([]tensor.Tensor{in}, "needs [batch, time, 3·heads·%d]", headDim)
	}
	if o.check(OpAttention); o.Offset != 0 {
		OpAttention.Fail(nil, "an Offset has no meaning where queries and keys are of the same positions")
	}
	if o.masked() {
		OpAttention.Fail(nil, "masks are CrossAttention's, to which queries, keys and values are given apart")
	}
	if r := t.Batch(in); r.Positions != 0 && r.Positions < r.Seq.Total {
		OpAttention.Fail([]tensor.Tensor{in}, "the step has %v: a position would see this rank's part of its sequence only", r)
	}
	n, heads := in.Dim(1), in.Dim(2)/(3*headDim)
	out, lse := t.New(in.DType(), in.Dim(0), n, heads*headDim), t.New(statType(in.DType()), in.Dim(0), heads, n)
	f := o.kernel(headDim)
	if t.Training() && o.Drop > 0 {
		f.drop(t, &o, t.RandomPlace(OpAttention, in, lse.Len()*n, heads, n*n, o.At))
	}
	f.launch(t, OpAttention, in, in, []tensor.Tensor{out, lse}, []tensor.Tensor{in})
	node := t.Record(OpAttention, out, in)
	f.note(node)
	t.Save(node, lse)
	return out
}

// attention holds the arguments of the attention kernels. I = head dimension, causal, for dropout First, Stride and Elems of kernel.Rows
// (I[2]: of sequences without padding, their number), window, the longest sequence without padding, offset; F = scale, drop, softCap.
type attention struct {
	I   [8]int
	F   [3]float64
	key uint64
}

func (o *AttentionOptions) kernel(headDim int) attention {
	f := attention{I: [8]int{0: headDim, 1: b2i(o.Causal), 5: o.Window, 7: o.Offset},
		F: [3]float64{cmp.Or(o.Scale, 1/math.Sqrt(float64(headDim))), 0, o.SoftCap}}
	if u := o.Unpadded; u != nil {
		f.I[2], f.I[6] = u.lengths.Len(), u.time
	}
	return f
}

func (f *attention) drop(t *tensor.Tape, o *AttentionOptions, place [8]int) {
	f.F[1], f.key = o.Drop, t.RandomKey(o.Layer)
	copy(f.I[2:5], place[:3])
}

// note keeps f in n, if there is one, and noted returns it.
func (f *attention) note(n *tensor.Node) {
	if n != nil {
		n.I, n.F, n.Key = f.I, f.F, f.key
	}
}

func noted(n *tensor.Node) attention { return attention{n.I, n.F, n.Key} }

// launch launches op for queries of the shape of q, or qkv, and keys of the shape of k. Operands may be none.
func (f *attention) launch(t *tensor.Tape, op tensor.Op, q, k tensor.Tensor, outs, ins []tensor.Tensor) {
	if q.Len() == 0 {
		return
	}
	a := t.Args(op, q.DType())
	for _, x := range outs {
		maybeOut(a, x)
	}
	for _, x := range ins {
		maybeIn(a, x)
	}
	a.Dim = [tensor.MaxNDim]int{q.Dim(0), q.Dim(1), q.Dim(-1), k.Dim(1), k.Dim(-1)}
	if n := f.I[6]; n > 0 {
		a.Dim[0], a.Dim[1], a.Dim[3] = f.I[2], n, n
	}
	a.I, a.Key = f.I, f.key
	copy(a.F[:], f.F[:])
	t.Launch()
}

func attentionVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	in, f := n.In(0), noted(n)
	d := t.NewLike(in)
	f.launch(t, OpAttentionGrad, in, in, []tensor.Tensor{d}, []tensor.Tensor{in, n.Out(), n.Grad(), n.Saved(0)})
	t.AddGrad(n, 0, d)
}
