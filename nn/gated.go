package nn

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
	return m
}

// Forward returns [..., d] for x [..., d].
func (m *GatedMLP) Forward(x T) T { return m.Down.Forward(m.gated(x)) }

// ForwardAdd returns r + Forward(x): a residual connection.
func (m *GatedMLP) ForwardAdd(x, r T) T { return m.Down.ForwardAdd(m.gated(x), r) }

func (m *GatedMLP) gated(x T) T { return m.Gate.then(m.Act, x).Mul(m.Up.Forward(x)) }
