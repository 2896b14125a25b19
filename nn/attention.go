package nn

import "github.com/ringo-ml/ringo/tensor/ops"

// Attention is causal multi-head self-attention (Vaswani et al. 2017): position i sees positions 0 to i.
type Attention struct {
	QKV     *Linear  // queries, keys and values of all heads, in this order
	Out     *Linear  // of the heads' joined outputs
	Drop    *Dropout // of the attention probabilities, whose columns are the heads; nil: none
	HeadDim int      // features per head
	Core    `nn:"-"`
}

// NewAttention returns attention over d features with the given number of heads, which must divide d.
func NewAttention(d, heads int) *Attention {
	if heads <= 0 || d%heads != 0 {
		fail("NewAttention", "%d features do not divide into %d heads", d, heads)
	}
	a := &Attention{QKV: NewLinear(d, 3*d), Out: NewLinear(d, d), HeadDim: d / heads}
	a.QKV.Parts = []int{d, d, d}
	return a
}

// Forward returns [B, T, d] for x [B, T, d]. The number of heads is what QKV's output has room for, so that QKV may
// hold a part of them.
func (a *Attention) Forward(x T) T { return a.Out.Forward(a.heads(x)) }

// ForwardAdd returns r + Forward(x): a residual connection.
func (a *Attention) ForwardAdd(x, r T) T { return a.Out.ForwardAdd(a.heads(x), r) }

// heads returns the joined outputs of all heads.
func (a *Attention) heads(x T) T {
	y := a.QKV.Forward(x)
	hd := a.HeadDim
	if y.NDim() != 3 || y.Dim(2)%(3*hd) != 0 {
		fail("Attention", "QKV gives %v, not [batch, time, 3·heads·%d], for an input of %v", y.Shape(), hd, x.Shape())
	}
	if !a.Core.builtIn() {
		if n := y.Dim(2) / 3; a.Drop == nil || a.Drop.P == 0 || !y.Tape().Training() {
			return a.Attend(y.Slice(2, 0, n), y.Slice(2, n, 2*n), y.Slice(2, 2*n, 3*n), hd, nil, nil, T{})
		}
		fail("Attention", "ranks divide sequences (Spread, Mix), where probabilities of attention cannot be dropped: set Drop to nil")
	}
	o := ops.AttentionOptions{Causal: true, AttentionScores: a.Scores}
	if a.Drop != nil {
		a.Drop.check(x)
		o.Drop, o.Layer, o.At = a.Drop.P, a.Drop.key, a.Drop.region(y)
	}
	return ops.Attention(y, hd, o)
}

// MLP is two linear layers with an activation between them.
type MLP struct {
	Up, Down *Linear
	Act      Layer
}

// NewMLP returns a network from d to h and back to d features, with GELU. Set Act for another activation.
func NewMLP(d, h int) *MLP { return &MLP{Up: NewLinear(d, h), Down: NewLinear(h, d), Act: GELU} }

// Forward returns [..., d] for x [..., d].
func (m *MLP) Forward(x T) T { return m.Down.Forward(m.Up.then(m.Act, x)) }

// ForwardAdd returns r + Forward(x): a residual connection.
func (m *MLP) ForwardAdd(x, r T) T { return m.Down.ForwardAdd(m.Up.then(m.Act, x), r) }
