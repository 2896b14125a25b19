package moe_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// naive computes every expert for every token, and adds up what the router's weights say.
func naive(l *moe.Layer, c moe.Config, x nn.T) nn.T {
	tape, d := x.Tape(), c.Features
	shape := x.Shape().Dims
	x = x.Reshape(x.Len()/d, d)
	r := l.Router.Forward(x)
	chosen := ops.OneHot(r.Experts, c.Experts, x.DType()) // [rows, top, experts]
	weights := chosen.Mul(r.Weights.Reshape(x.Dim(0), c.Router.Top, 1)).Sum(1)
	matrix := func(p *tensor.Param, e int) nn.T {
		return tape.Use(p).Slice(0, e, e+1).Reshape(p.Dims()[1:]...)
	}
	y := x.Scale(0)
	for e := range c.Experts {
		z := tensor.Linear(x, matrix(l.Experts.Up, e), nn.T{})
		if c.GELU {
			z = z.GELU()
		} else {
			z = z.Mul(tensor.Linear(x, matrix(l.Experts.Gate, e), nn.T{}).SiLU())
		}
		z = tensor.Linear(z, matrix(l.Experts.Down, e), nn.T{})
		y = y.Add(z.Mul(weights.Slice(1, e, e+1)))
	}
	if l.Shared != nil {
		y = y.Add(l.Shared.Forward(x))
	}
	scores := r.Scores.Div(r.Scores.Sum(1).Reshape(x.Dim(0), 1)) // a softmax's sum is 1
	n := x.Dim(0)
	if c.Sequence > 0 {
		n = c.Sequence
	}
	for at := 0; at < x.Dim(0); at += n {
		part := chosen.Slice(0, at, at+n).Sum(1).Mean(0).Scale(1 / float64(c.Router.Top)).Detach()
		loss := scores.Slice(0, at, at+n).Mean(0).Mul(part).Sum().Scale(float64(c.Experts))
		y = tensor.WithAux(y, loss, c.Balance*float64(n)/float64(x.Dim(0)))
	}
	z := r.Logits.Exp().Sum(1).Log().Square().Mean()
	return tensor.WithAux(y, z, c.Z).Reshape(shape...)
}

// model is a layer between two others.
type model struct {
	In, Out *nn.Linear
	MoE     *moe.Layer `nn:"moe"`
	Drop    *nn.Dropout
	forward func(nn.T) nn.T
}

func newModel(c moe.Config) *model {
	m := &model{In: nn.NewLinear(3, c.Features), Out: nn.NewLinear(c.Features, 2), MoE: moe.NewLayer(c), Drop: nn.NewDropout(0.2)}
	m.forward = m.MoE.Forward
	return m
}

func (m *model) Forward(x nn.T) nn.T {
	h := m.In.Forward(x).Tanh()
	return m.Out.Forward(h.Add(m.Drop.Forward(m.forward(h))))
}

// loss of what m gives for x, with checkpoints of the activations or without them.
func (m *model) loss(x nn.T, again bool) nn.T {
	x = x.Reshape(-1, 3) // tokens: of one position, [rows, 1, features] may be [1, rows, features]
	y := nn.T{}
	if again {
		y = x.Tape().Checkpoint(func(in ...nn.T) nn.T { return m.Forward(in[0]) }, x)
	} else {
		y = m.Forward(x)
	}
	return nn.MSE(y, x.Slice(1, 0, 2).Tanh())
}

// onOne trains a layer, or the naive one, on one rank with two threads, and on batches that change in length.
func onOne(c moe.Config, slow, again bool, steps int) disttest.Training {
	return disttest.Training{Steps: steps, Batch: 10, Rule: trainable, Name: fmt.Sprintf("%+v, naive %v, again %v", c, slow, again),
		On: func(ctx context.Context, cfg dist.Config, fn func(ctx context.Context, r *dist.Rank) error) error {
			cfg.Threads = 2
			return dist.Run(ctx, cfg, fn)
		}, Attach: func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
			m := newModel(c)
			if slow {
				m.forward = func(x nn.T) nn.T { return naive(m.MoE, c, x) }
			}
			return disttest.Attached{Params: nn.Init(m, r.Device, tensor.Float64, 3), Loss: func(b disttest.Batch) nn.T {
				n := 1 + b.First%4
				return m.loss(b.Tape.Input(tensor.FromSlice(values(n, 7, 3), n, 7, 3)).Scale(1+float64(b.First)/10), again)
			}}, nil
		}}
}

// Every router trains as the layer that computes all experts for all tokens.
func TestLayerEqualsNaive(t *testing.T) {
	for name, r := range routers {
		c := moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: r, Balance: 0.1, Z: 0.01, Shared: 3}
		if name == "qwen" || name == "deepseek" {
			c.GELU, c.Sequence = true, 7
		}
		want := onOne(c, true, false, 10).Run(t)
		disttest.RequireEqual(t, want, onOne(c, false, false, 10).Run(t), 1e-10)
		disttest.RequireEqual(t, want, onOne(c, false, true, 10).Run(t), 1e-10)
	}
}

// The losses of the router have gradients, each on its own.
func TestLossesOfTheRouter(t *testing.T) {
	plain := onOne(moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["qwen"]}, false, false, 2).Run(t)
	for name, c := range map[string]moe.Config{"balance": {Balance: 0.1}, "z": {Z: 0.1}} {
		c.Features, c.Hidden, c.Experts, c.Router = 5, 6, 8, routers["qwen"]
		got := onOne(c, false, false, 2).Run(t)
		disttest.RequireEqual(t, onOne(c, true, false, 2).Run(t), got, 1e-10)
		require.NotEqual(t, plain.Last, got.Last, name)
	}
}

// Experts that double their input give twice the input, whatever the router does, if its weights add up to 1.
func TestLinearExperts(t *testing.T) {
	c := moe.Config{Features: 4, Hidden: 1, Experts: 8, Router: router.Config{Top: 3, Normalize: true}}
	l := moe.NewLayer(c)
	l.Experts.Gate, l.Experts.Up, l.Experts.Down = tensor.NewParam(tensor.Constant(0.5), 8, 1, 4),
		tensor.NewParam(tensor.Constant(1), 8, 1, 4), tensor.NewParam(tensor.Constant(1), 8, 4, 1)
	dev := cpu.New(1)
	nn.Init(l, dev, tensor.Float64, 1)
	tape := tensor.NewTape(dev)
	x := tensor.FromSlice(values(9, 4), 9, 4)
	got := tensor.Floats(l.Forward(tape.Input(x)))
	one := nn.NewGatedMLP(4, 1)
	one.Gate.W, one.Up.W, one.Down.W = tensor.NewParam(tensor.Constant(0.5), 1, 4), tensor.NewParam(tensor.Constant(1), 1, 4),
		tensor.NewParam(tensor.Constant(1), 4, 1)
	nn.Init(one, dev, tensor.Float64, 1)
	require.InDeltaSlice(t, tensor.Floats(one.Forward(tape.Input(x))), got, 1e-13, "equal experts are one")
}

// Experts that no token chooses have gradients of zeros, and so have all of them where there are no tokens.
func TestExpertsWithoutTokens(t *testing.T) {
	for _, rows := range []int{0, 1} {
		c := moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router.Config{Top: 2}}
		l := moe.NewLayer(c)
		dev := cpu.New(1)
		params := nn.Init(l, dev, tensor.Float64, 1)
		tape := tensor.NewTape(dev)
		y := l.Forward(tape.Input(tensor.FromSlice(values(rows, 5), rows, 5)))
		require.Equal(t, []int{rows, 5}, y.Shape().Dims)
		tape.Backward(y.Sum())
		for _, p := range params {
			require.True(t, p.HasGrad(), p.Name())
		}
		busy, size := 0, 6*5
		for e := range 8 {
			for _, g := range tensor.Floats(l.Experts.Up.Grad.ToLocal())[e*size : (e+1)*size] {
				if g != 0 {
					busy++
					break
				}
			}
		}
		require.Equal(t, 2*rows, busy)
	}
}

// A model in bfloat16 gives what it gives in float64, as far as its bits reach; two runs give the same bits.
func TestLayerOfHalves(t *testing.T) {
	c := moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["deepseek"], Shared: 4, Balance: 0.1, Z: 0.1}
	run := func() []float64 {
		l := moe.NewLayer(c)
		dev := cpu.New(2)
		defer dev.Close()
		nn.Init(l, dev, tensor.BFloat16, 1)
		tape := tensor.NewTape(dev)
		defer tape.Close()
		y := l.Forward(tape.Input(tensor.FromSlice(values(9, 5), 9, 5)).Cast(tensor.BFloat16))
		require.Equal(t, tensor.BFloat16, y.DType())
		out := tensor.Floats(y)
		tape.Backward(y.Cast(tensor.Float32).Sum())
		return append(out, tensor.Floats(l.Router.W.Grad)...)
	}
	got := run()
	require.Equal(t, got, run())
	l := moe.NewLayer(c)
	dev := cpu.New(2)
	nn.Init(l, dev, tensor.Float64, 1)
	tape := tensor.NewTape(dev)
	want := tensor.Floats(l.Forward(tape.Input(tensor.FromSlice(values(9, 5), 9, 5))))
	require.InDeltaSlice(t, want, got[:len(want)], 0.03)
}

// A step allocates nothing.
func TestLayerAllocatesNothing(t *testing.T) {
	c := moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["deepseek"], Balance: 0.1, Z: 0.1}
	l := moe.NewLayer(c)
	dev := cpu.New(1)
	nn.Init(l, dev, tensor.Float32, 1)
	tape, x := tensor.NewTape(dev), tensor.New(dev, tensor.Float32, 9, 5)
	step := func() {
		tape.Backward(l.Forward(tape.Input(x)).Sum(), tensor.More())
		tape.Reset()
	}
	step()
	step()
	require.Zero(t, testing.AllocsPerRun(10, step))
}

func TestWrongLayers(t *testing.T) {
	c := moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router.Config{Top: 2}, Balance: 0.1}
	require.ErrorContains(t, tensor.Try(func() { moe.NewLayer(moe.Config{Features: 5}) }),
		"moe.NewLayer: Experts 0, Features 5 and Hidden 0 must be 1 or more")
	dev := cpu.New(1)
	tape := tensor.NewTape(dev)
	made := func(c moe.Config) *moe.Layer {
		l := moe.NewLayer(c)
		nn.Init(l, dev, tensor.Float64, 1)
		return l
	}
	l := made(c)
	require.ErrorContains(t, tensor.Try(func() { l.Forward(tape.Input(tensor.New(dev, tensor.Float64, 3, 4))) }),
		"moe.Layer: x is float64[3,4], not [..., 5]")
	x := tensor.New(dev, tensor.Float64, 3, 5)
	for _, c := range []moe.Config{c, {Capacity: 1}, {Balance: 0.1, Capacity: 1}, {Balance: 0.1, Sequence: 3}} {
		c.Features, c.Hidden, c.Experts, c.Router = 5, 6, 8, router.Config{Top: 2}
		require.ErrorContains(t, tensor.Try(func() {
			made(c).Forward(tape.Input(x.WithRows(tensor.Rows{First: 3, Stride: 1, Total: 6, Over: 1})))
		}), "needs Parallelize: moe.Parallelize(moe.Ranks{Tokens: g}, layers...)")
	}
}

// Slots are dropped in the order of the batch. Ranks that have rows apart, or do not say who has the other parts of their sequences, would
// drop others than one rank.
func TestCapacityNeedsRowsSideBySide(t *testing.T) {
	l := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 4, Router: router.Config{Top: 2}, Capacity: 1})
	dev := cpu.New(1)
	nn.Init(l, dev, tensor.Float64, 1)
	for want, rows := range map[string]tensor.Rows{
		"Capacity 1 keeps the first slots in the order of the batch": {Stride: 2, Total: 4},
		"a Capacity, need Ranks.Positions":                           {Stride: 1, Total: 2, Seq: tensor.Spans{First: 3, Total: 6}},
	} {
		x := tensor.New(dev, tensor.Float64, 2, 3, 5).WithRows(rows)
		require.ErrorContains(t, tensor.Try(func() { l.Forward(tensor.NewTape(dev).Input(x)) }), want)
		require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
			l := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 4, Router: router.Config{Top: 2}, Capacity: 1})
			nn.ParamsOf(l)
			require.NoError(t, moe.Parallelize(moe.Ranks{Tokens: r.World}, l))
			nn.Init(l, r.Device, tensor.Float64, 1)
			require.ErrorContains(t, tensor.Try(func() { l.Forward(tensor.NewTape(r.Device).Input(x)) }), want)
			return nil
		}))
		require.NoError(t, tensor.Try(func() { l.Forward(tensor.NewTape(dev, tensor.Eval()).Input(x)) }), "evaluation has no limit")
	}
}

// A model that was trained with losses of its router generates word by word: they are of training alone.
func TestLossesOfTheRouterAreOfTraining(t *testing.T) {
	l := moe.NewLayer(moe.Config{Features: 5, Hidden: 6, Experts: 4, Router: router.Config{Top: 2}, Balance: 0.1, Sequence: 3, Z: 0.1})
	dev := cpu.New(1)
	nn.Init(l, dev, tensor.Float64, 1)
	word := tensor.New(dev, tensor.Float64, 1, 1, 5)
	for _, quiet := range []tensor.TapeOption{tensor.Eval(), tensor.NoGrad()} {
		require.NoError(t, tensor.Try(func() { l.Forward(tensor.NewTape(dev, quiet).Input(word)) }))
	}
	require.ErrorContains(t, tensor.Try(func() { l.Forward(tensor.NewTape(dev).Input(word)) }), "sequences of 3 tokens: there are 1")
}

// routers are the routers of tests over 8 experts.
var routers = map[string]router.Config{
	"switch":       {Top: 1},
	"qwen":         {Top: 3, Normalize: true},
	"mixtral":      {Top: 2, Scoring: router.Chosen},
	"all of them":  {Top: 8, Scoring: router.Sigmoid},
	"sigmoid":      {Top: 2, Scoring: router.Sigmoid, Bias: true, Normalize: true, Scale: 2.5},
	"deepseek":     {Top: 3, Scoring: router.Sigmoid, Bias: true, Groups: 4, TopGroups: 2, Normalize: true, Scale: 2.5},
	"softmax bias": {Top: 2, Bias: true, Groups: 2, TopGroups: 1},
}

// values returns numbers that follow no pattern.
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
