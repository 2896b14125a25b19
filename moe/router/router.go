package router

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Scoring says how a router's logits become scores of experts, and scores weights.
type Scoring int

const (
	Softmax Scoring = iota // over all experts, before the choice (Fedus et al. 2021, "Switch Transformers"; Qwen, DeepSeek-V2)
	Chosen                 // the largest logits are chosen, and the softmax is over these (Jiang et al. 2024, "Mixtral of Experts")
	Sigmoid                // each expert on its own (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report")
)

// Config says how experts are chosen and weighted. The zero value but for Top is the router of Switch Transformers.
type Config struct {
	Top     int // experts of a token
	Scoring Scoring

	// Bias adds a buffer to the scores for the choice alone: weights are without it. Who moves it towards experts with few tokens
	// balances them without a loss (Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts").
	Bias bool

	// Groups, if not 0, are groups of experts side by side: only those in the TopGroups groups with the largest sums of their two best
	// scores may be chosen (DeepSeek-V3), so that a token's experts are on few hosts.
	Groups, TopGroups int

	// Forced has tokens take experts in turn, in the order of the batch, whatever their scores: for benchmarks alone, which have to say so.
	Forced bool

	Normalize bool    // divide the weights of a token by their sum + 1e-20
	Scale     float64 // multiplies the weights; 0: 1
}

// Router chooses experts for each token. It computes in float32 for parameters of 16 bits: scores that are close would tie.
type Router struct {
	nn.Inner                // W is [experts, features]; LoRA may adapt it
	Bias     *tensor.Buffer `nn:"e_score_correction_bias"` // [experts]; nil without Config.Bias

	c Config
}

// Routing is what a Router says of rows tokens.
type Routing struct {
	Experts nn.T // [rows, top], Int64, the largest score first
	Weights nn.T // [rows, top]: of what these experts give
	Scores  nn.T // [rows, experts]: softmax or sigmoid of the logits, without bias
	Logits  nn.T // [rows, experts]
}

// New returns a router from d features to n experts.
func New(d, n int, c Config) *Router {
	if err := c.check(n); err != nil {
		panic(&tensor.Failure{Op: "router.New", Err: err})
	}
	r := &Router{Inner: nn.Inner{Linear: nn.Linear{W: tensor.NewParam(tensor.KaimingUniform(d), n, d)}}, c: c}
	if c.Bias {
		r.Bias = tensor.NewBuffer(tensor.Constant(0), n)
	}
	return r
}

func (c *Config) check(n int) error {
	eligible := n // experts that may be chosen
	if c.Groups != 0 || c.TopGroups != 0 {
		switch {
		case c.Groups <= 0 || n%c.Groups != 0 || n/c.Groups < 2:
			return fmt.Errorf("%d experts do not divide into %d groups of two or more", n, c.Groups)
		case c.TopGroups < 1 || c.TopGroups > c.Groups:
			return fmt.Errorf("TopGroups is %d, want 1 to %d, the number of groups", c.TopGroups, c.Groups)
		}
		eligible = n / c.Groups * c.TopGroups
	}
	switch {
	case c.Top < 1 || c.Top > eligible:
		return fmt.Errorf("a Top of %d, want 1 to %d, the number of experts to choose from", c.Top, eligible)
	case c.Scoring < Softmax || c.Scoring > Sigmoid:
		return fmt.Errorf("unknown Scoring %d", c.Scoring)
	case c.Scoring == Chosen && c.Bias:
		return fmt.Errorf("a Bias is added to scores between 0 and 1: Scoring has to be Softmax or Sigmoid")
	}
	return nil
}

// Forward routes x [rows, features].
func (r *Router) Forward(x nn.T) Routing {
	if x.DType().IsHalf() {
		x = x.Cast(tensor.Float32)
	}
	logits := r.Product(x)
	out := Routing{Logits: logits}
	if r.c.Scoring == Sigmoid {
		out.Scores = logits.Sigmoid()
	} else {
		out.Scores = ops.Softmax(logits)
	}
	from := out.Scores // what is chosen from, and weights are made of
	if r.c.Scoring == Chosen {
		from = logits
	}
	out.Experts = x.Tape().Once(func() nn.T {
		if r.c.Forced {
			return r.roundRobin(x)
		}
		return r.choose(from.Detach())
	})
	out.Weights = ops.Gather(from, 1, out.Experts)
	if r.c.Scoring == Chosen {
		out.Weights = ops.Softmax(out.Weights)
	}
	if r.c.Normalize {
		out.Weights = out.Weights.Div(out.Weights.Sum(1).Reshape(x.Dim(0), 1).Affine(1, 1e-20))
	}
	if r.c.Scale != 0 {
		out.Weights = out.Weights.Scale(r.c.Scale)
	}
	return out
}

// choose returns the experts with the largest scores [rows, experts], as Config says.
func (r *Router) choose(scores nn.T) nn.T {
	if r.Bias != nil {
		scores = scores.Add(scores.Tape().Use(&r.Bias.Param).Cast(scores.DType()))
	}
	if r.c.Groups > 0 {
		rows, n := scores.Dim(0), scores.Dim(1)
		groups := scores.Reshape(rows, r.c.Groups, n/r.c.Groups)
		best, _ := ops.TopK(groups, 2)
		_, top := ops.TopK(best.Sum(2), r.c.TopGroups)
		eligible := ops.OneHot(top, r.c.Groups, scores.DType()).Sum(1).Cast(tensor.Bool).Reshape(rows, r.c.Groups, 1)
		scores = ops.Where(eligible, groups, groups.Affine(0, math.Inf(-1))).Reshape(rows, n)
	}
	_, experts := ops.TopK(scores, r.c.Top)
	return experts
}

// roundRobin returns the experts [rows, top] of tokens x that take them in turn.
func (r *Router) roundRobin(x nn.T) nn.T {
	t, rows, n := x.Tape(), x.Dim(0), r.W.Dims()[0]
	first := 0 // slot of the batch
	if b := t.Rows(); b.Total > 0 && b.Stride == 1 {
		first = tensor.GlobalCount(x) / x.Dim(1) / b.Total * b.First * r.c.Top % n
	}
	turns := (first+rows*r.c.Top)/n + 1
	all := ops.Arange(t, tensor.Int64, 0, float64(n), 1).Reshape(1, n).Broadcast(turns, n).Reshape(turns * n)
	return tensor.RowsLike(all.Slice(0, first, first+rows*r.c.Top).Reshape(rows, r.c.Top), x)
}

// UpdateBias changes the bias by rate: down for an expert that more than the mean number of slots chose, up for one that less did.
func (r *Router) UpdateBias(chosen []int64, rate float64) error {
	v := r.Bias.Value
	if v.DType().IsHalf() {
		return fmt.Errorf("router: the bias %s has 16 bits, which lose steps of %g: keep parameters in float32", r.Bias.Name(), rate)
	}
	total := int64(0)
	for _, n := range chosen {
		total += n
	}
	bias := tensor.Floats(v)
	for e, n := range chosen {
		switch d := n*int64(len(chosen)) - total; {
		case d > 0:
			bias[e] -= rate
		case d < 0:
			bias[e] += rate
		}
	}
	x := tensor.ToDevice(v.Device(), tensor.FromSlice(bias, len(bias)))
	tape := tensor.NewTape(v.Device(), tensor.NoGrad())
	defer tape.Close()
	tensor.Copy(v, tape.Input(x).Cast(v.DType()))
	r.Bias.Changed()
	return nil
}
