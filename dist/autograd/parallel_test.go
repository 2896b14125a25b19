package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const features, hidden = 7, 5

// block is a norm, a column-parallel and a row-parallel layer with dropout between them, and a head. The hidden features are
// unevenly cut.
type block struct {
	Norm     *nn.LayerNorm
	Up, Down *nn.Linear
	Drop     *nn.Dropout
	Head     *nn.Linear

	lossOf func(logits, y nn.T) nn.T // replaces the cross-entropy
}

func newBlock() model {
	return &block{nn.NewLayerNorm(features), nn.NewLinear(features, hidden), nn.NewLinear(hidden, features), nn.NewDropout(0.3), nn.NewLinear(features, 5), nil}
}

func (b *block) loss(t *tensor.Tape, s samples) nn.T {
	x, y := disttest.Dataset{DType: tensor.Float64, Features: features}.Samples(s.dev, s.first, s.n)
	x = t.Input(x.WithRows(s.rows))
	h := b.Drop.Forward(b.Up.Forward(b.Norm.Forward(x)).Tanh())
	logits := b.Head.Forward(b.Down.Forward(h).Add(x))
	if b.lossOf != nil {
		return b.lossOf(logits, y)
	}
	return nn.CrossEntropy(logits, y)
}

// cut keeps only this rank's part of the hidden features.
func (b *block) cut(m *dist.Mesh) {
	tp := m.Group("tp")
	cutAlong(tp, b.Up.W, 0, 1, 1)
	cutAlong(tp, b.Up.B, 0, 1, 1)
	cutAlong(tp, b.Down.W, 1, 1, 1)
	leaveWhole(tp, nn.ParamsOf(b))
	b.Up.Pre, b.Down.Post = &autograd.Copy{Group: tp}, &autograd.Sum{Group: tp}
	lo, _ := share(hidden, tp)
	b.Drop.At = func(nn.T) tensor.Region { return tensor.Region{Cols: tensor.Span{First: lo, Total: hidden}} }
}

func (b *block) units(s *fsdp.Sharding, _ *dist.Mesh) {
	s.Keep(b.Norm)
	s.Unit(b.Up, b.Down)
	s.Unit(b.Head)
}

// Column and row parallel layers train as on one rank.
func TestBlockEqualsOneRank(t *testing.T) {
	requireOneRank(t, newBlock, layout{dp: 2, cut: "tp=2"}, layout{dp: 1, cut: "tp=3"}, layout{dp: 1, fsdp: 3, cut: "tp=2"})
}

// Each program has one communication too few or too many, or in the wrong place. It is refused before a step is trained.
func TestWrongProgramsAreRefused(t *testing.T) {
	type wrong struct {
		change func(b *block, dp, tp, all *dist.Group)
		over   func(all *dist.Group) *dist.Group
		want   string
	}
	loss := func(f func(logits, y nn.T) nn.T) func(b *block, _, _, _ *dist.Group) {
		return func(b *block, _, _, _ *dist.Group) { b.lossOf = f }
	}
	for name, c := range map[string]wrong{
		"no Copy before the columns": {change: func(b *block, _, _, _ *dist.Group) { b.Up.Pre = nil }, want: "autograd.Copy"},
		"Copy over all ranks":        {change: func(b *block, _, _, all *dist.Group) { b.Up.Pre = &autograd.Copy{Group: all} }, want: "axis dp"},
		"Copy over dp":               {change: func(b *block, dp, _, _ *dist.Group) { b.Up.Pre = &autograd.Copy{Group: dp} }, want: "axis dp"},
		"Copy twice":                 {change: func(b *block, _, tp, _ *dist.Group) { b.Up.Pre = &twice{&autograd.Copy{Group: tp}} }, want: "axis tp"},
		"no Sum behind the rows":     {change: func(b *block, _, _, _ *dist.Group) { b.Down.Post = nil }, want: "axis tp"},
		"Sum without types":          {change: func(b *block, _, tp, _ *dist.Group) { b.Down.Post = &untyped{&autograd.Sum{Group: tp}} }, want: "axis tp"},
		"Sum behind the columns":     {change: func(b *block, _, tp, _ *dist.Group) { b.Up.Post = &autograd.Sum{Group: tp} }, want: "autograd.Sum: "},
		"Sum over all ranks":         {change: func(b *block, _, _, all *dist.Group) { b.Down.Post = &autograd.Sum{Group: all} }, want: "axis dp"},
		"Sum of what is whole":       {change: func(b *block, _, tp, _ *dist.Group) { b.Head.Post = &autograd.Sum{Group: tp} }, want: "axis tp"},
		"gathered rows, not columns": {change: func(b *block, _, tp, _ *dist.Group) { b.Up.Pre = &autograd.AllGather{Group: tp} }, want: "axis tp"},
		"scattered and not gathered": {change: func(b *block, _, tp, _ *dist.Group) {
			b.Down.Post = &autograd.ReduceScatter{Group: tp, Dim: 1, Counts: autograd.Shares(features, tp.Size())}
		}, want: "shapes do not broadcast"},
		"the norm goes through Copy": {change: func(b *block, _, tp, _ *dist.Group) { b.Norm.W.Through(&autograd.Copy{Group: tp}) }, want: "axis tp"},
		"dropout without its place":  {change: func(b *block, _, _, _ *dist.Group) { b.Drop.At = nil }, want: "tensor.Region"},
		"ddp over all ranks":         {over: func(all *dist.Group) *dist.Group { return all }, want: "has of up.weight the part"},
		"no ddp":                     {over: func(*dist.Group) *dist.Group { return nil }, want: "attach the parameter with ddp or fsdp"},
		"a mean of its own":          {change: loss(func(x, _ nn.T) nn.T { return x.Square().Mean() }), want: "GlobalMean"},
		"a loss of parts":            {change: loss(func(x, _ nn.T) nn.T { return x.Square().Sum().Square() }), want: "autograd.Sum"},
		"a penalty on each rank": {change: loss(func(x, y nn.T) nn.T {
			return nn.CrossEntropy(x, y).Add(x.Tape().Input(tensor.FromSlice([]float64{1}, 1)).Sum())
		}), want: "once for each rank"},
	} {
		t.Run(name, func(t *testing.T) {
			j := training{layout: layout{dp: 2, cut: "tp=2"}, model: newBlock}
			j.change = func(n model, m *dist.Mesh, all *dist.Group) {
				if c.change != nil {
					c.change(n.(*block), m.Group("dp"), m.Group("tp"), all)
				}
			}
			if c.over != nil {
				j.over = func(_ model, _ *dist.Mesh, all *dist.Group) *dist.Group { return c.over(all) }
			}
			requireRefused(t, c.want, j)
		})
	}
}

// twice applies a Function's types twice.
type twice struct{ *autograd.Copy }

func (f *twice) Types(in []tensor.Types, rows tensor.Axes) ([]tensor.Types, error) {
	out, err := f.Copy.Types(in, rows)
	if err != nil {
		return nil, err
	}
	return f.Copy.Types(out, rows)
}
