package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// wrongGPT changes one thing in a right program.
type wrongGPT map[string]struct {
	change func(m *gpt, l *layer, tp *dist.Group)
	want   string
}

func (w wrongGPT) areRefused(t *testing.T, right func() model) {
	for name, c := range w {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, c.want, training{layout: layout{dp: 2, cut: "tp=2"}, model: right, change: func(n model, m *dist.Mesh, _ *dist.Group) {
				c.change(n.(*gpt), n.(*gpt).Layers[0], m.Group("tp"))
			}})
		})
	}
}

// Each program has one communication for heads or the vocabulary too few or too many.
func TestWrongTensorParallelIsRefused(t *testing.T) {
	type g = *dist.Group
	wrongGPT{
		"no Copy before the heads":         {func(_ *gpt, l *layer, _ g) { l.QKV.Pre = nil }, "layers.0.qkv.weight"},
		"no Sum behind the heads":          {func(_ *gpt, l *layer, _ g) { l.Out.Post = nil }, "layers.0.out.bias"},
		"no Copy before the vocabulary":    {func(m *gpt, _ *layer, _ g) { m.Head.Pre = nil }, "parameter head.weight"},
		"no Sum behind the vocabulary":     {func(m *gpt, _ *layer, _ g) { m.Tok.Post = nil }, "layers.0.n1.weight"},
		"cross-entropy of each rank's":     {func(m *gpt, _ *layer, _ g) { m.lossOf = func(x, y nn.T) nn.T { return nn.CrossEntropy(x, y.Sub(y)) } }, "the loss is that of a part of the features: a sum over the ranks is missing"},
		"heads' dropout without its place": {func(_ *gpt, l *layer, _ g) { l.heads = nil }, "tensor.Region"},
		"a norm through Copy":              {func(_ *gpt, l *layer, tp g) { l.N1.W.Through(&autograd.Copy{Group: tp}) }, "axis tp"},
	}.areRefused(t, newGPT)
}

// Each program has one communication for parts of the tokens too few or too many.
func TestWrongSequenceParallelIsRefused(t *testing.T) {
	type g = *dist.Group
	wrongGPT{
		"a norm without Copy":           {func(_ *gpt, l *layer, _ g) { l.N1.W = bare(l.N1.W, 0) }, "layers.0.n1.weight"},
		"a late bias without Copy":      {func(_ *gpt, l *layer, _ g) { l.Down.B = bare(l.Down.B, 0) }, "layers.0.down.bias"},
		"a norm through Copy and ddp":   {func(_ *gpt, l *layer, tp g) { l.N1.W.Lay(tp.Axes(), tensor.Replicated) }, "autograd.Copy"},
		"no AllGather before columns":   {func(_ *gpt, l *layer, _ g) { l.Up.Pre = nil }, "autograd.AllGather"},
		"Copy in place of AllGather":    {func(_ *gpt, l *layer, tp g) { l.Up.Pre = &autograd.Copy{Group: tp} }, "autograd.Copy"},
		"no ReduceScatter behind rows":  {func(_ *gpt, l *layer, _ g) { l.Down.Post = nil }, "shapes do not broadcast"},
		"a slice in place of it":        {func(m *gpt, l *layer, _ g) { l.Down.Post = &slice{m} }, "autograd.AllGather"},
		"neither of the two":            {func(_ *gpt, l *layer, _ g) { l.Up.Pre, l.Down.Post = nil, nil }, "autograd.AllGather"},
		"Sum in place of it":            {func(_ *gpt, l *layer, tp g) { l.Down.Post = &autograd.Sum{Group: tp} }, "layers.0.down.bias"},
		"Sum behind the vocabulary":     {func(m *gpt, _ *layer, tp g) { m.Tok.Post = &autograd.Sum{Group: tp} }, "axis tp"},
		"no AllGather before the head":  {func(m *gpt, _ *layer, _ g) { m.Head.Pre = nil }, "autograd.AllGather"},
		"AllGather whose Backward cuts": {func(m *gpt, l *layer, _ g) { l.Up.Pre = &sliced{m.gather} }, "layers.0.up.weight"},
		"dropout without its place":     {func(_ *gpt, l *layer, _ g) { l.Drop.At = nil }, "tensor.Region"},
	}.areRefused(t, newSequenceGPT)
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
	grads[0] = g.Pad(0, lo, f.m.rows*length-lo-g.Dim(0))
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
