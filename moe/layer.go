package moe

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/moe/dispatch"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Config is the shape of a Layer.
type Config struct {
	Features, Hidden, Experts int
	Router                    router.Config

	Shared int // hidden features of a shared expert, which sees all tokens (Dai et al. 2024, "DeepSeekMoE"); 0: none

	// Capacity limits the slots of an expert to Capacity · tokens · top / experts, rounded up, of the tokens of all ranks (Lepikhin et al.
	// 2020, "GShard"): in the order of the tokens of the batch, and of a token's experts, the first ones are computed, and the others are
	// dropped: they add nothing to their tokens. Shapes are fixed, and nothing waits for counts. In evaluation (tensor.Eval) there is no
	// limit. 0: no limit in training either. With m microbatches, the tokens are those of the whole step (Rows.Total), and each microbatch
	// has so many places: divide Capacity by m to drop in each of them what a batch of its size would.
	Capacity float64

	Mixtral bool // files name the matrices of experts as Mixtral's: w1, w3 and w2 for gate_proj, up_proj and down_proj

	GELU bool // experts are two matrices with GELU between them, in place of SwiGLU

	Balance  float64 // weight of the balance loss, in training; 0: none
	Sequence int     // tokens of a sequence: the balance loss is the mean of that of each sequence (DeepSeek-V3); 0: that of the batch
	Z        float64 // weight of the z-loss, in training; 0: none
}

// Layer is a mixture of experts.
type Layer struct {
	Router  *router.Router `nn:"gate"`
	Experts *Experts
	Shared  *nn.GatedMLP `nn:"shared_experts"` // nil: none

	c          Config
	ranks      parallel
	dispatcher *dispatch.Dispatcher
	calls      int  // that agree was asked
	load       nn.T // [experts+1]: slots since Balancer.Step, of this rank's tokens; and how many were dropped
}

// Experts are networks as nn.GatedMLP, SwiGLU without biases, on top of each other.
type Experts struct {
	Gate *tensor.Param `nn:"gate_proj"` // [experts, hidden, features]; nil with Config.GELU
	Up   *tensor.Param `nn:"up_proj"`   // [experts, hidden, features]
	Down *tensor.Param `nn:"down_proj"` // [experts, features, hidden]
}

// NewLayer returns a layer with PyTorch's initialization of its matrices.
func NewLayer(c Config) *Layer {
	d, h, n := c.Features, c.Hidden, c.Experts
	if d < 1 || h < 1 || n < 1 || c.Shared < 0 || !(c.Capacity >= 0) {
		fail("NewLayer", "Experts %d, Features %d and Hidden %d must be 1 or more; Shared %d and Capacity %g must not be negative",
			n, d, h, c.Shared, c.Capacity)
	}
	l := &Layer{
		Router: router.New(d, n, c.Router),
		Experts: &Experts{
			Gate: tensor.NewParam(tensor.KaimingUniform(d), n, h, d),
			Up:   tensor.NewParam(tensor.KaimingUniform(d), n, h, d),
			Down: tensor.NewParam(tensor.KaimingUniform(h), n, d, h),
		},
		c: c, dispatcher: dispatch.New(dispatch.Config{Capacity: c.Capacity}),
	}
	if c.GELU {
		l.Experts.Gate = nil
	}
	if c.Shared > 0 {
		l.Shared = nn.NewGatedMLP(d, c.Shared)
	}
	return l
}

// Settings returns the Config (nn.Configured): ranks with another one would train with wrong gradients.
func (l *Layer) Settings() any { return l.c }

// Stored says that files keep each expert on its own, under the names of Hugging Face's models (nn.Storer): experts.3.gate_proj.weight.
func (l *Layer) Stored(name string, dims []int) (as []tensor.Stored, transposed bool) {
	matrix, ok := strings.CutPrefix(name, "experts.")
	if !ok {
		return nil, false
	}
	if l.c.Mixtral {
		matrix = map[string]string{"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[matrix]
	}
	for e := range dims[0] {
		as = append(as, tensor.Stored{Name: fmt.Sprintf("experts.%d.%s.weight", e, matrix), Rows: 1, Total: 1, Squeeze: true})
	}
	return as, false
}

// Forward returns [..., features] for x [..., features].
func (l *Layer) Forward(x nn.T) nn.T {
	var dims [tensor.MaxNDim]int
	for i := range x.NDim() {
		dims[i] = x.Dim(i)
	}
	shape := dims[:x.NDim()]
	if d := l.Router.W.Dims()[1]; x.NDim() < 2 || x.Dim(-1) != d {
		fail("Layer", "x is %v, not [..., %d]", x.Shape(), d)
	}
	d := x.Dim(-1)
	x = x.Reshape(x.Len()/d, d)
	l.mustCount(x)
	if l.ranks.Tokens == nil && (l.c.Capacity != 0 || l.c.Balance != 0) && x.Tape().Rows().Over != 0 && tensor.GlobalCount(x) != x.Len() {
		fail("Layer", "Capacity, or a balance loss, of a part of the batch needs Parallelize: moe.Parallelize(moe.Ranks{Tokens: g}, layers...) "+
			"with the group of the loader, such as r.World, counts what all its ranks chose")
	}
	r := l.Router.Forward(x)
	experts, x := l.gathered(r.Experts), through(l.ranks.toHidden, x)
	counts := ops.Bincount(experts.Reshape(experts.Len()), l.Router.W.Dims()[0])
	l.agree(experts)
	tokens := tensor.GlobalCount(x) / d
	p := l.dispatcher.Plan(experts, counts, tokens*l.c.Router.Top, l.tokensOfRow(x.Tape(), experts.Dim(0)))
	l.count(counts, p.Dropped)
	y := through(l.ranks.fromHidden, l.compute(x, through(l.ranks.toHidden, r.Weights), p))
	return l.addLosses(y, r, experts, counts, tokens).Reshape(shape...)
}

// tokensOfRow returns how many tokens of each row of the batch are this rank's, for a capacity; 0: its rows are whole.
func (l *Layer) tokensOfRow(t *tensor.Tape, tokens int) int {
	if l.c.Capacity == 0 || !t.Training() {
		return 0
	}
	if t.Rows().Stride > 1 {
		fail("Layer", "Capacity %g keeps the first slots in the order of the batch: this needs rows side by side, not rows apart; "+
			"leave Capacity 0", l.c.Capacity)
	}
	return l.positions(t, tokens)
}

// positions returns how many positions of each row this rank has, which are Share's; 0: rows are whole.
func (l *Layer) positions(t *tensor.Tape, tokens int) int {
	r, a := t.Rows(), layout.Axis{Ranks: 1}
	if g := l.ranks.Positions; g != nil {
		a = g.Axis()
	}
	if r.Seq.Total == 0 {
		return 0
	}
	lo, hi := layout.Share(r.Seq.Total, a.Rank, a.Ranks)
	if r.Seq.Skip > 0 || a.Axes != r.SeqOver || lo != r.Seq.First || tokens%(hi-lo) != 0 {
		fail("Layer", "a balance loss of sequences, and a Capacity, need Ranks.Positions, the ranks with parts of the same sequences in their "+
			"order (cp.Ulysses, not a ring): there are %d, and this rank has %d tokens, of positions from %d on", a.Ranks, tokens, r.Seq.First)
	}
	return hi - lo
}

// mustCount panics if the ranks whose tokens are counted are not those with other tokens: the balance loss, the slots of a capacity and
// the moves of biases would be others than on one rank.
func (l *Layer) mustCount(x nn.T) {
	if l.ranks.Gather != nil && l.ranks.adapted != (l.Router.Adapter != nil) {
		fail("Layer", "%s has got its adapter after Parallelize: call nn.LoRA first", l.Router.W.Name())
	}
	g, over := l.ranks.Tokens, x.Tape().Rows().Over
	if g != nil && x.Tape().Training() && g.Axes() != over {
		fail("Layer", "Ranks.Tokens is group %s of %d ranks, but these are not the ranks with other rows or positions (Rows.Over of the batch): "+
			"give moe.Parallelize the group of the loader, such as mesh.Group(\"dp\", \"ep\"), with the axes along which sequences are divided",
			g.Name(), g.Size())
	}
}

// compute returns the outputs of the experts for x, with the shared expert. The two halves of the shared expert are computed while rows
// travel to the experts and back.
func (l *Layer) compute(x, weights nn.T, p dispatch.Plan) nn.T {
	var shared nn.T
	y := l.dispatcher.Run(p, x, weights, func(rows, counts nn.T) nn.T { return l.Experts.Forward(rows, counts) }, func(part int) {
		switch s := l.Shared; {
		case s == nil:
		case part == 0:
			shared = s.Up.Forward(x).Mul(s.Gate.Forward(x).SiLU())
		default:
			shared = s.Down.Forward(shared)
		}
	})
	if g := l.ranks.Hidden; g != nil { // each rank has a part of the hidden features, so of a sum
		y = tensor.AsPart(y, g.Axes())
	}
	if l.Shared != nil {
		y = y.Add(shared)
	}
	return y
}

// ForwardAdd returns Forward(x) + r.
func (l *Layer) ForwardAdd(x, r nn.T) nn.T { return l.Forward(x).Add(r) }

// Forward returns what the experts give for x, whose first counts[0] rows are the first expert's, and so on.
func (e *Experts) Forward(x, counts nn.T) nn.T {
	t := x.Tape()
	if e.Gate == nil {
		return ops.GroupedLinear(ops.GroupedLinear(x, t.Use(e.Up), counts).GELU(), t.Use(e.Down), counts)
	}
	gate := ops.GroupedLinear(x, t.Use(e.Gate), counts).SiLU()
	up := ops.GroupedLinear(x, t.Use(e.Up), counts)
	return ops.GroupedLinear(gate.Mul(up), t.Use(e.Down), counts)
}

func fail(op, format string, a ...any) {
	panic(&tensor.Failure{Op: "moe." + op, Err: fmt.Errorf(format, a...)})
}
