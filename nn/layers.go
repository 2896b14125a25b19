package nn

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Layer is what a Sequential is made of.
type Layer interface{ Forward(x T) T }

// Sequential calls layers one after another. Its parameters are named "0.weight", "2.bias" and so on. A Linear and the
// activation behind it are computed as one operation, with the same bits.
type Sequential []Layer

// Forward returns the output of the last layer.
func (s Sequential) Forward(x T) T {
	for i := 0; i < len(s); i++ {
		if l, ok := s[i].(*Linear); ok && i+1 < len(s) {
			x = l.then(s[i+1], x)
			i++
		} else {
			x = s[i].Forward(x)
		}
	}
	return x
}

// Linear computes x·Wᵀ + B.
type Linear struct {
	W *tensor.Param `nn:"weight"` // [out, in]
	B *tensor.Param `nn:"bias"`   // [out]; nil: none
	// Pre, if not nil, is applied to the input, and Post to the output. A bias that is cut along with W's rows is added
	// before Post (which may gather them), and any other after it (Post may sum, and the bias counts once).
	Pre, Post tensor.Function `nn:"-"`
	// Parts, if not nil, are the widths of the outputs that W holds on top of each other, such as the queries, keys and
	// values of attention. Who cuts W's rows must cut each part.
	Parts []int

	Adapter *Adapter `nn:",inline"` // of LoRA; nil: none

	// Float8 says how x and W are scaled to compute x·Wᵀ and its gradients with 8-bit floats; see the function Float8.
	Float8 ops.Float8

	SoftCap float64 // an output y becomes SoftCap·tanh(y/SoftCap) (logits of Gemma 2, 2024); 0: y
}

// NewLinear returns a layer from in to out features, with PyTorch's initialization: weight and bias uniform in
// ±1/√in. For a layer without bias, set B to nil.
func NewLinear(in, out int) *Linear {
	init := tensor.KaimingUniform(in)
	return &Linear{W: tensor.NewParam(init, out, in), B: tensor.NewParam(init, out)}
}

// Forward returns [..., out] for x [..., in].
func (l *Linear) Forward(x T) T {
	y := l.forward(x, tensor.NoActivation)
	if s := l.SoftCap; s > 0 {
		y = y.Scale(1 / s).Tanh().Scale(s)
	}
	return y
}

// fuses reports whether the operation of the product can do what follows it.
func (l *Linear) fuses() bool {
	return l.Post == nil && l.Adapter == nil && l.Float8 == ops.NoFloat8 && l.SoftCap == 0
}

// IsProduct reports whether Forward is a product with W alone, of what Pre returns, and then SoftCap.
func (l *Linear) IsProduct() bool {
	return l.B == nil && l.Post == nil && l.Adapter == nil && l.Float8 == ops.NoFloat8
}

// Operands returns the operands of that product, for what takes its place: Pre(x) and W.
func (l *Linear) Operands(x T) (in, w T) {
	return apply(l.Pre, x), tapeOf(x).Use(l.W)
}

// ForwardAdd returns r + Forward(x) in one operation.
func (l *Linear) ForwardAdd(x, r T) T {
	if !l.fuses() {
		return r.Add(l.Forward(x))
	}
	t := tapeOf(x)
	x = apply(l.Pre, x)
	b := use(t, l.B)
	return tensor.LinearAdd(x, t.Use(l.W), b, r)
}

// then returns next.Forward(l.Forward(x)).
func (l *Linear) then(next Layer, x T) T {
	a, ok := next.(Activation)
	if !ok || !l.fuses() || a.fused == tensor.NoActivation {
		return next.Forward(l.Forward(x))
	}
	return l.forward(x, a.fused)
}

// forward applies act, which must be none unless l fuses, and no cap.
func (l *Linear) forward(x T, act tensor.Activation) T {
	t := tapeOf(x)
	if l.Float8 != ops.NoFloat8 {
		return l.forward8(x)
	}
	x = apply(l.Pre, x)
	late := l.Post != nil && l.B != nil && !l.B.IsCut()
	var b T
	if l.B != nil && !late {
		b = t.Use(l.B)
	}
	var y T
	switch {
	case l.Post == nil:
		y = l.adapt(x, tensor.LinearAct(x, t.Use(l.W), b, act))
	case l.Adapter == nil && b.IsZero():
		y = tensor.LinearApply(l.Post, x, t.Use(l.W))
	default:
		y = t.Apply(l.Post, l.adapt(x, tensor.Linear(x, t.Use(l.W), b)))
	}
	if late {
		y = y.Add(t.Use(l.B))
	}
	return y
}

// Embedding is a table of vectors.
type Embedding struct {
	W    *tensor.Param   `nn:"weight"` // [n, d]
	Post tensor.Function `nn:"-"`      // if not nil, applied to the output
}

// NewEmbedding returns a table of n vectors of d elements, standard normal at first.
func NewEmbedding(n, d int) *Embedding {
	return &Embedding{W: tensor.NewParam(tensor.NormalInit(0, 1), n, d)}
}

// Forward returns the vectors [..., d] of ids [...], Int64 or Int32.
func (e *Embedding) Forward(ids T) T {
	return apply(e.Post, e.lookup(tapeOf(ids).Use(e.W), ids))
}

// lookup returns the vectors of ids, and zeros for those in rows that other ranks have.
func (e *Embedding) lookup(w, ids T) T {
	boxes := e.W.Placement().Boxes()
	if w.Dim(0) == e.W.Global()[0] { // whole, or gathered where it is used
		return ops.Embedding(w, ids)
	}
	if b := boxes[0]; len(boxes) > 1 || b.Hi[1]-b.Lo[1] != e.W.Global()[1] {
		fail("Embedding", "%s must be sharded by rows, but its boxes are %v", e.W.Name(), boxes)
	}
	return ops.EmbeddingPart(w, ids, boxes[0].Lo[0], e.W.Global()[0])
}

// LayerNorm normalizes the last dimension to mean 0 and variance 1, and scales and shifts it (Ba et al. 2016).
type LayerNorm struct {
	W   *tensor.Param `nn:"weight"` // [d]; nil: ones
	B   *tensor.Param `nn:"bias"`   // [d]; nil: zeros
	Eps float64
}

// NewLayerNorm returns a layer for d features, with W = 1, B = 0 and Eps = 1e-5.
func NewLayerNorm(d int) *LayerNorm {
	return &LayerNorm{W: tensor.NewParam(tensor.Constant(1), d), B: tensor.NewParam(tensor.Constant(0), d), Eps: 1e-5}
}

// Forward returns a tensor of x's shape, [..., d].
func (n *LayerNorm) Forward(x T) T {
	t := tapeOf(x)
	return ops.LayerNorm(x, use(t, n.W), use(t, n.B), n.Eps)
}

// RMSNorm divides the last dimension by its root mean square and scales it (Zhang and Sennrich 2019).
type RMSNorm struct {
	W            *tensor.Param `nn:"weight"` // [d]; nil: ones
	Eps          float64
	ZeroCentered bool // the scale is 1 + W, so that weight decay pulls it to 1 (Gemma; Megatron's zero-centered gamma)
}

// NewRMSNorm returns a layer for d features, with W = 1 and Eps = 1e-5.
func NewRMSNorm(d int) *RMSNorm {
	return &RMSNorm{W: tensor.NewParam(tensor.Constant(1), d), Eps: 1e-5}
}

// Forward returns a tensor of x's shape, [..., d].
func (n *RMSNorm) Forward(x T) T {
	w := use(tapeOf(x), n.W)
	if n.ZeroCentered && n.W != nil {
		w = w.Affine(1, 1)
	}
	return ops.RMSNorm(x, w, n.Eps)
}

func tapeOf(x T) *tensor.Tape {
	t := x.Tape()
	if t == nil {
		fail("Forward", "the input %v is on no tape; put it there with Tape.Input", x.Shape())
	}
	return t
}

// use puts an optional parameter on the tape.
func use(t *tensor.Tape, p *tensor.Param) T {
	if p == nil {
		return T{}
	}
	return t.Use(p)
}

// Activation is a function of each element, as a Layer.
type Activation struct {
	f     func(x T) T
	fused tensor.Activation // what a Linear before it can apply
}

// Forward returns f(x).
func (a Activation) Forward(x T) T { return a.f(x) }

// The activations, as layers. GELU is the exact one, GELUTanh PyTorch's approximate="tanh".
var (
	ReLU     = Activation{T.ReLU, tensor.ActReLU}
	GELU     = Activation{T.GELU, tensor.ActGELU}
	GELUTanh = Activation{T.GELUTanh, tensor.ActGELUTanh}
	SiLU     = Activation{T.SiLU, tensor.ActSiLU}
	Tanh     = Activation{f: T.Tanh}
	Sigmoid  = Activation{f: T.Sigmoid}
)
