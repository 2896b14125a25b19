package moe

import (
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Config is the shape of a Layer.
type Config struct {
	Features, Hidden, Experts int
	Router                    RouterConfig

	Shared int // hidden features of a shared expert, which sees all tokens (Dai et al. 2024, "DeepSeekMoE"); 0: none

	Balance float64 // weight of the balance loss; 0: none
	Z       float64 // weight of the z-loss; 0: none
}

// Layer is a mixture of experts.
type Layer struct {
	Router  *Router `nn:"gate"`
	Experts *Experts
	Shared  *nn.GatedMLP `nn:"shared_experts"` // nil: none

	balance, z float64
}

// Experts are networks as nn.GatedMLP, SwiGLU without biases, on top of each other.
type Experts struct {
	Gate *tensor.Param `nn:"gate_proj"` // [experts, hidden, features]
	Up   *tensor.Param `nn:"up_proj"`   // [experts, hidden, features]
	Down *tensor.Param `nn:"down_proj"` // [experts, features, hidden]
}

// NewLayer returns a layer with PyTorch's initialization of its matrices.
func NewLayer(c Config) *Layer {
	d, h, n := c.Features, c.Hidden, c.Experts
	if d < 1 || h < 1 || n < 1 || c.Shared < 0 {
		fail("NewLayer", "%d experts from %d to %d features, and a shared one of %d", n, d, h, c.Shared)
	}
	l := &Layer{
		Router: NewRouter(d, n, c.Router),
		Experts: &Experts{
			Gate: tensor.NewParam(tensor.KaimingUniform(d), n, h, d),
			Up:   tensor.NewParam(tensor.KaimingUniform(d), n, h, d),
			Down: tensor.NewParam(tensor.KaimingUniform(h), n, d, h),
		},
		balance: c.Balance, z: c.Z,
	}
	if c.Shared > 0 {
		l.Shared = nn.NewGatedMLP(d, c.Shared)
	}
	return l
}

// Forward returns [..., features] for x [..., features].
func (l *Layer) Forward(x nn.T) nn.T {
	var dims [tensor.MaxRank]int
	for i := range x.Rank() {
		dims[i] = x.Dim(i)
	}
	shape := dims[:x.Rank()]
	if d := l.Router.W.Dims()[1]; x.Rank() < 2 || x.Dim(-1) != d {
		fail("Layer", "x is %v, not [..., %d]", x.Shape(), d)
	}
	d := x.Dim(-1)
	x = x.Reshape(x.Len()/d, d)
	r := l.Router.Forward(x)
	slots := r.Experts.Reshape(r.Experts.Len())
	counts := slots.Bincount(l.Router.W.Dims()[0])
	y := dispatch(x, slots, r.Weights, func(rows nn.T) nn.T { return l.Experts.Forward(rows, counts) })
	if l.Shared != nil {
		y = y.Add(l.Shared.Forward(x))
	}
	return l.seed(y, r, counts).Reshape(shape...)
}

// dispatch sorts slots, top of each row of x, by their experts, has compute work on the rows, and adds up what each row of x gets.
func dispatch(x, slots, weights nn.T, compute func(nn.T) nn.T) nn.T {
	rows, top := weights.Dim(0), weights.Dim(1)
	_, sorted := slots.Sort(0, false) // stable: the slots of an expert keep their order
	_, back := sorted.Sort(0, false)
	token := x.Tape().Arange(tensor.Int64, 0, float64(rows), 1).Reshape(rows, 1).Broadcast(rows, top).Reshape(rows * top)
	y := compute(tensor.Embedding(x, token.Gather(0, sorted)))
	y = tensor.Embedding(y, back).Cast(weights.DType()).Mul(weights.Reshape(rows*top, 1))
	return y.Reshape(rows, top, x.Dim(1)).Sum(1).Cast(x.DType())
}

// Forward returns what the experts give for x, whose first counts[0] rows are the first expert's, and so on.
func (e *Experts) Forward(x, counts nn.T) nn.T {
	t := x.Tape()
	gate := tensor.GroupedLinear(x, t.Use(e.Gate), counts).SiLU()
	up := tensor.GroupedLinear(x, t.Use(e.Up), counts)
	return tensor.GroupedLinear(gate.Mul(up), t.Use(e.Down), counts)
}

// seed adds the losses of the router to Backward.
func (l *Layer) seed(y nn.T, r Routing, counts nn.T) nn.T {
	if l.balance != 0 {
		if tensor.GlobalCount(r.Scores) != r.Scores.Len() {
			fail("Layer", "a balance loss of tokens on several ranks: counts of experts are of one rank's tokens")
		}
		scores := r.Scores
		if l.Router.c.Scoring == Sigmoid {
			scores = scores.Div(scores.Sum(1).Reshape(scores.Dim(0), 1).Affine(1, 1e-20))
		}
		slots := float64(max(1, r.Experts.Len()))
		part := counts.Cast(scores.DType()).Scale(1 / slots)
		n := float64(counts.Len())
		y = tensor.WithAux(y, tensor.GlobalMean(scores.Mul(part)).Scale(n*n), l.balance)
	}
	if l.z != 0 {
		y = tensor.WithAux(y, tensor.GlobalMean(r.Logits.LogSumExp().Square()), l.z)
	}
	return y
}
