package router_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// routers are the configurations of tests over 8 experts, with values of a Bias.
var routers = map[string]router.Config{
	"switch":       {Top: 1},
	"qwen":         {Top: 3, Normalize: true},
	"mixtral":      {Top: 2, Scoring: router.Chosen},
	"all of them":  {Top: 8, Scoring: router.Sigmoid},
	"sigmoid":      {Top: 2, Scoring: router.Sigmoid, Bias: true, Normalize: true, Scale: 2.5},
	"deepseek":     {Top: 3, Scoring: router.Sigmoid, Bias: true, Groups: 4, TopGroups: 2, Normalize: true, Scale: 2.5},
	"softmax bias": {Top: 2, Bias: true, Groups: 2, TopGroups: 1},
}

// byHand routes one token from its logits, as the formulas say.
func byHand(c router.Config, logits, bias []float64) (experts []int, weights []float64) {
	n := len(logits)
	scores, sum := make([]float64, n), 0.0
	for e, x := range logits {
		scores[e] = math.Exp(x)
		sum += scores[e]
	}
	for e, x := range logits {
		scores[e] /= sum
		if c.Scoring == router.Sigmoid {
			scores[e] = 1 / (1 + math.Exp(-x))
		}
	}
	choice := make([]float64, n)
	for e := range choice {
		choice[e] = scores[e]
		if c.Bias {
			choice[e] += bias[e]
		}
	}
	if c.Groups > 0 {
		size := n / c.Groups
		best := make([]float64, c.Groups)
		for g := range best {
			two := slices.Clone(choice[g*size : (g+1)*size])
			slices.Sort(two)
			best[g] = two[size-1] + two[size-2]
		}
		for range c.Groups - c.TopGroups {
			worst := slices.Index(best, slices.Min(best))
			best[worst] = math.Inf(1)
			for e := worst * size; e < (worst+1)*size; e++ {
				choice[e] = math.Inf(-1)
			}
		}
	}
	sum = 0
	for range c.Top {
		e := slices.Index(choice, slices.Max(choice))
		choice[e] = math.Inf(-1)
		experts, weights = append(experts, e), append(weights, scores[e])
		sum += scores[e]
	}
	for i := range weights {
		if c.Normalize || c.Scoring == router.Chosen {
			weights[i] /= sum
		}
		if c.Scale != 0 {
			weights[i] *= c.Scale
		}
	}
	return experts, weights
}

func values(dims ...int) (list []float64) {
	n := 1
	for _, d := range dims {
		n *= d
	}
	for i := range n {
		list = append(list, math.Sin(float64(3*i*i+i+1)))
	}
	return list
}

// newRouter returns a router from 5 features to 8 experts whose Bias is not 0.
func newRouter(c router.Config, d tensor.DType) (r *router.Router, bias []float64) {
	r = router.New(5, 8, c)
	nn.Init(r, cpu.New(1), d, 1)
	bias = []float64{-0.5, 0.25, 0, 0.125, -2, 0.5, -0.25, 0.125} // exact in 16 bits
	if c.Bias {
		p := &r.Bias.Param
		e := tensor.NewExec(p.Value.Device())
		e.Args(tensor.OpCast, tensor.Float64).Out(p.Value).In(tensor.FromSlice(bias, 8))
		e.Launch()
	}
	return r, bias
}

// Experts and weights are those of the formulas, in every type: the router of a model in bfloat16 computes in float32.
func TestRouter(t *testing.T) {
	const rows = 37
	for name, c := range routers {
		for d, tol := range map[tensor.DType]float64{tensor.Float64: 1e-14, tensor.Float32: 1e-6, tensor.BFloat16: 1e-6} {
			r, bias := newRouter(c, d)
			tape := tensor.NewTape(r.W.Value.Device())
			x := tape.Input(tensor.FromSlice(values(rows, 5), rows, 5)).Cast(d)
			got := r.Forward(x)
			w, in := tensor.Floats(r.W.Value), tensor.Floats(x)
			for i := range rows {
				logits := make([]float64, 8)
				for e := range logits {
					for k := range 5 {
						logits[e] += w[e*5+k] * in[i*5+k]
					}
				}
				experts, weights := byHand(c, logits, bias)
				for k, e := range experts {
					require.Equal(t, int64(e), tensor.Data[int64](got.Experts)[i*c.Top+k], "%s %v: token %d", name, d, i)
				}
				require.InDeltaSlice(t, weights, tensor.Floats(got.Weights)[i*c.Top:(i+1)*c.Top], tol, "%s %v: token %d", name, d, i)
			}
		}
	}
}

// Gradients flow through weights, not through the choice: they are the differences where no choice changes.
func TestRouterGradients(t *testing.T) {
	const rows = 6
	for name, c := range routers {
		r, _ := newRouter(c, tensor.Float64)
		tape := tensor.NewTape(r.W.Value.Device())
		x := tensor.FromSlice(values(rows, 5), rows, 5)
		loss := func() nn.T {
			got := r.Forward(tape.Input(x))
			return got.Weights.Mul(tape.Input(tensor.FromSlice(values(rows, c.Top), rows, c.Top))).Sum()
		}
		tape.Backward(loss())
		grad := slices.Clone(tensor.Floats(r.W.Grad))
		w := tensor.Data[float64](r.W.Value)
		for i := range w {
			const h = 1e-6
			at := w[i]
			tape.Reset()
			w[i] = at + h
			up := loss().Item()
			tape.Reset()
			w[i] = at - h
			down := loss().Item()
			w[i] = at
			require.InDelta(t, (up-down)/(2*h), grad[i], 1e-8, "%s: weight %d", name, i)
		}
		tape.Close()
	}
}

func TestWrongRouters(t *testing.T) {
	for want, c := range map[string]router.Config{
		"a Top of 0, want 1 to 8, the number of experts to choose from": {},
		"a Top of 9, want 1 to 8, the number of experts to choose from": {Top: 9},
		"a Top of 5, want 1 to 4, the number of experts to choose from": {Top: 5, Groups: 2, TopGroups: 1},
		"8 experts do not divide into 3 groups of two or more":          {Top: 1, Groups: 3, TopGroups: 1},
		"8 experts do not divide into 8 groups of two or more":          {Top: 1, Groups: 8, TopGroups: 1},
		"8 experts do not divide into 0 groups of two or more":          {Top: 1, TopGroups: 1},
		"TopGroups is 0, want 1 to 2, the number of groups":             {Top: 1, Groups: 2},
		"TopGroups is 3, want 1 to 2, the number of groups":             {Top: 1, Groups: 2, TopGroups: 3},
		"unknown Scoring 3":                    {Top: 1, Scoring: 3},
		"Scoring has to be Softmax or Sigmoid": {Top: 1, Scoring: router.Chosen, Bias: true},
	} {
		require.ErrorContains(t, tensor.Try(func() { router.New(5, 8, c) }), "router.New: ")
		require.ErrorContains(t, tensor.Try(func() { router.New(5, 8, c) }), want)
	}
}

// Forced tokens take experts in turn, in the order of the batch, and their weights are their scores.
func TestForced(t *testing.T) {
	r, _ := newRouter(router.Config{Top: 3, Forced: true}, tensor.Float64)
	tape := tensor.NewTape(r.W.Value.Device())
	x := values(14, 5)
	for first := range 7 {
		in := tape.Input(tensor.FromSlice(x[first*10:], 7-first, 2, 5).WithRows(tensor.Rows{First: first, Stride: 1, Total: 7}))
		got := r.Forward(in.Reshape((7-first)*2, 5))
		scores := tensor.Floats(got.Scores)
		for i, e := range tensor.Data[int64](got.Experts) {
			require.Equal(t, int64((first*2*3+i)%8), e, "slot %d from row %d", i, first)
			require.Equal(t, scores[i/3*8+int(e)], tensor.Floats(got.Weights)[i])
		}
		tape.Reset()
	}
	require.Empty(t, tensor.Data[int64](r.Forward(tape.Input(tensor.New(tape.Device(), tensor.Float64, 0, 5))).Experts))
}

// A choice that was made is kept when a Checkpoint computes again, though the bias that chose has moved.
func TestChoiceIsKept(t *testing.T) {
	r, _ := newRouter(routers["sigmoid"], tensor.Float64)
	tape := tensor.NewTape(r.W.Value.Device())
	grad := func(checkpoint bool) []float64 {
		forward := func(in ...tensor.Tensor) tensor.Tensor {
			got := r.Forward(in[0])
			return got.Weights.Mul(got.Experts.Cast(tensor.Float64))
		}
		x := tape.Input(tensor.FromSlice(values(6, 5), 6, 5))
		var y nn.T
		if checkpoint {
			y = tape.Checkpoint(forward, x)
			require.NoError(t, r.UpdateBias([]int64{0, 9, 0, 9, 0, 9, 0, 9}, 10))
		} else {
			y = forward(x)
		}
		tape.Backward(y.Sum())
		defer tape.Reset()
		r.W.Consume()
		return slices.Clone(tensor.Floats(r.W.Grad))
	}
	want := grad(false)
	require.Equal(t, want, grad(true))
	require.NotEqual(t, want, grad(false), "the bias moved")
}
