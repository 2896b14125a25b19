package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// wrongly changes the first layer.
func wrongly(f func(l *layer, tp *dist.Group)) func(m *gpt, _ *ranks) {
	return func(m *gpt, _ *ranks) { f(m.Layers[0], m.tp) }
}

// Each program has one communication too few or too many, or in the wrong place.
func TestWrongTensorParallelIsRefused(t *testing.T) {
	type group = *dist.Group
	all := func(g *ranks) *dist.Group { return g.Group("dp", "tp") }
	loss := func(f func(m *gpt, x, y nn.T) nn.T) func(m *gpt, _ *ranks) {
		return func(m *gpt, _ *ranks) { m.lossOf = func(x, y nn.T) nn.T { return f(m, x, y) } }
	}
	requireRefused(t, job{model: newGPT, training: training{Mesh: "dp=2,tp=2"}}, map[string]wrong[*gpt]{
		"no Copy before the heads":         {wrongly(func(l *layer, _ group) { l.QKV.Pre = nil }), "layers.0.qkv.weight"},
		"no Sum behind the heads":          {wrongly(func(l *layer, _ group) { l.Out.Post = nil }), "layers.0.out.bias"},
		"no Copy before the vocabulary":    {func(m *gpt, _ *ranks) { m.Head.Pre = nil }, "parameter head.weight"},
		"no Sum behind the vocabulary":     {func(m *gpt, _ *ranks) { m.Tok.Post = nil }, "layers.0.n1.weight"},
		"heads' dropout without its place": {wrongly(func(l *layer, _ group) { l.heads = nil }), "tensor.Region"},
		"a norm through Copy":              {wrongly(func(l *layer, tp group) { l.N1.W.Through(&autograd.Copy{Group: tp}) }), "axis tp"},
		"no Copy before the columns":       {wrongly(func(l *layer, _ group) { l.Up.Pre = nil }), "autograd.Copy"},
		"Copy over all ranks":              {func(m *gpt, g *ranks) { m.Layers[0].Up.Pre = &autograd.Copy{Group: all(g)} }, "axis dp"},
		"Copy over dp":                     {func(m *gpt, g *ranks) { m.Layers[0].Up.Pre = &autograd.Copy{Group: g.Group("dp")} }, "axis dp"},
		"Copy twice":                       {wrongly(func(l *layer, tp group) { l.Up.Pre = &twice{&autograd.Copy{Group: tp}} }), "axis tp"},
		"no Sum behind the rows":           {wrongly(func(l *layer, _ group) { l.Down.Post = nil }), "axis tp"},
		"Sum without types":                {wrongly(func(l *layer, tp group) { l.Down.Post = &untyped{&autograd.Sum{Group: tp}} }), "axis tp"},
		"Sum behind the columns":           {wrongly(func(l *layer, tp group) { l.Up.Post = &autograd.Sum{Group: tp} }), "autograd.Sum: "},
		"Sum over all ranks":               {func(m *gpt, g *ranks) { m.Layers[0].Down.Post = &autograd.Sum{Group: all(g)} }, "axis dp"},
		"Sum of what is whole":             {wrongly(func(l *layer, tp group) { l.Down.Post = &twice{&autograd.Sum{Group: tp}} }), "axis tp"},
		"gathered rows, not columns":       {wrongly(func(l *layer, tp group) { l.Up.Pre = &autograd.AllGather{Group: tp} }), "axis tp"},
		"scattered and not gathered": {wrongly(func(l *layer, tp group) { l.Down.Post = &autograd.ReduceScatter{Group: tp, Dim: 1} }),
			"shapes do not broadcast"},
		"dropout without its place": {wrongly(func(l *layer, _ group) { l.Thin.At = nil }), "tensor.Region"},
		"ddp over all ranks":        {func(_ *gpt, g *ranks) { g.sum = all(g) }, "has of tok.weight the part"},
		"no ddp":                    {func(_ *gpt, g *ranks) { g.sum = nil }, "attach the parameter with ddp or fsdp"},
		"cross-entropy of each rank's": {loss(func(_ *gpt, x, y nn.T) nn.T { return nn.CrossEntropy(x, y.Sub(y)) }),
			"the loss is that of a part of the features: a sum over the ranks is missing"},
		"a mean of its own": {loss(func(_ *gpt, x, _ nn.T) nn.T { return x.Square().Mean() }), "GlobalMean"},
		"a loss of parts":   {loss(func(_ *gpt, x, _ nn.T) nn.T { return x.Square().Sum().Square() }), "autograd.Sum"},
		"a penalty on each rank, joined": {loss(func(m *gpt, x, y nn.T) nn.T {
			return tensor.Concat(0, m.crossEntropy(x, y).Reshape(1), x.Tape().Input(tensor.FromSlice([]float64{1}, 1))).Sum()
		}), "once for each rank"},
	})
}

// twice applies a Function's types twice.
type twice struct{ disttest.Communicating }

func (f *twice) Types(in []tensor.Types, rows tensor.Axes) ([]tensor.Types, error) {
	out, err := f.Communicating.Types(in, rows)
	if err != nil {
		return nil, err
	}
	return f.Communicating.Types(out, rows)
}

// Each program has one communication for parts of the tokens too few or too many.
func TestWrongSequenceParallelIsRefused(t *testing.T) {
	type group = *dist.Group
	requireRefused(t, job{model: newSequenceGPT, training: training{Mesh: "dp=2,tp=2"}}, map[string]wrong[*gpt]{
		"a norm without Copy":           {wrongly(func(l *layer, _ group) { l.N1.W = bare(l.N1.W, nil) }), "layers.0.n1.weight"},
		"a late bias without Copy":      {wrongly(func(l *layer, _ group) { l.Down.B = bare(l.Down.B, nil) }), "layers.0.down.bias"},
		"a norm through Copy and ddp":   {wrongly(func(l *layer, tp group) { l.N1.W.SumOver(tp.Axes()) }), "autograd.Copy"},
		"no AllGather before columns":   {wrongly(func(l *layer, _ group) { l.Up.Pre = nil }), "autograd.AllGather"},
		"Copy in place of AllGather":    {wrongly(func(l *layer, tp group) { l.Up.Pre = &autograd.Copy{Group: tp} }), "autograd.Copy"},
		"no ReduceScatter behind rows":  {wrongly(func(l *layer, _ group) { l.Down.Post = nil }), "once for each rank"},
		"a slice in place of it":        {func(m *gpt, _ *ranks) { m.Layers[0].Down.Post = &slice{m} }, "autograd.Sum"},
		"neither of the two":            {wrongly(func(l *layer, _ group) { l.Up.Pre, l.Down.Post = nil, nil }), "autograd.AllGather"},
		"Sum in place of it":            {wrongly(func(l *layer, tp group) { l.Down.Post = &autograd.Sum{Group: tp} }), "layers.0.down.bias"},
		"Sum behind the vocabulary":     {func(m *gpt, _ *ranks) { m.Tok.Post = &autograd.Sum{Group: m.tp} }, "axis tp"},
		"no AllGather before the head":  {func(m *gpt, _ *ranks) { m.Head.Pre = nil }, "autograd.AllGather"},
		"AllGather whose Backward cuts": {func(m *gpt, _ *ranks) { m.Layers[0].Up.Pre = &sliced{m.gather} }, "layers.0.up.weight"},
		"dropout without its place":     {wrongly(func(l *layer, _ group) { l.Drop.At = nil }), "tensor.Region"},
	})
}

// slice takes this rank's tokens from a partial sum, as if it were the sum.
type slice struct{ m *gpt }

func (*slice) Name() string { return "slice" }

func (f *slice) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	lo, hi := share(in[0].Dim(0), f.m.tp)
	return in[0].Slice(0, lo, hi)
}

func (f *slice) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	lo, _ := share(f.m.rows*length, f.m.tp)
	grads[0] = ops.Pad(g, 0, lo, f.m.rows*length-lo-g.Dim(0))
}

// sliced is an AllGather whose Backward takes this rank's tokens from the gradient and does not sum. Its types say so: its output has the
// same gradient on all ranks.
type sliced struct{ *autograd.AllGather }

func (f *sliced) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	lo := 0
	for _, n := range f.Counts[:f.Group.Rank()] {
		lo += n
	}
	grads[0] = g.Slice(0, lo, lo+f.Counts[f.Group.Rank()])
}

func (f *sliced) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(f.Group.Axes(), tensor.Varying, tensor.Invariant)
	return in, err
}
