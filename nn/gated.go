package nn

import "github.com/ringo-ml/ringo/tensor"

// GatedMLP is the feed-forward network of Llama: Down(Act(Gate(x))·Up(x)), SwiGLU with SiLU (Shazeer, "GLU variants improve
// transformer", 2020).
type GatedMLP struct {
	Gate *Linear `nn:"gate_proj"`
	Up   *Linear `nn:"up_proj"`
	Down *Linear `nn:"down_proj"`
	Act  Layer
}

// NewGatedMLP returns a network from d to h and back to d features, with SiLU and without biases.
func NewGatedMLP(d, h int) *GatedMLP {
	m := &GatedMLP{Gate: NewLinear(d, h), Up: NewLinear(d, h), Down: NewLinear(h, d), Act: SiLU}
	for _, l := range []*Linear{m.Gate, m.Up, m.Down} {
		l.B = nil
	}
	Together(m.Gate, m.Up)
	return m
}

// Forward returns [..., d] for x [..., d].
func (m *GatedMLP) Forward(x T) T { return m.Down.Forward(m.gated(x)) }

// ForwardAdd returns r + Forward(x): a residual connection.
func (m *GatedMLP) ForwardAdd(x, r T) T { return m.Down.ForwardAdd(m.gated(x), r) }

// gated returns Act(Gate(x))·Up(x). On a GPU, Gate and Up are one product (see Together) with SiLU, which no product there computes.
func (m *GatedMLP) gated(x T) T {
	var y [2]T
	if a, ok := m.Act.(Activation); ok && a.fused == tensor.ActSiLU && forwardAll(y[:], x, m.Gate, m.Up) {
		return a.Forward(y[0]).Mul(y[1])
	}
	return m.Gate.then(m.Act, x).Mul(m.Up.Forward(x))
}
