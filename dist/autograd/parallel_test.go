package autograd_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
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
}

func newBlock() *block {
	return &block{nn.NewLayerNorm(features), nn.NewLinear(features, hidden), nn.NewLinear(hidden, features), nn.NewDropout(0.3), nn.NewLinear(features, 5)}
}

func (b *block) Forward(x nn.T) nn.T {
	h := b.Drop.Forward(b.Up.Forward(b.Norm.Forward(x)).Tanh())
	return b.Head.Forward(b.Down.Forward(h).Add(x))
}

// cut leaves this rank its part of the hidden features.
func (b *block) cut(tp *dist.Group, params nn.Params) {
	lo, hi := disttest.Part(hidden, tp.Rank(), tp.Size())
	hi += lo
	b.Up.W.Cut([]int{hi - lo, features}, tensor.Box{Lo: []int{lo, 0}, Hi: []int{hi, features}})
	b.Up.B.Cut([]int{hi - lo}, tensor.Box{Lo: []int{lo}, Hi: []int{hi}})
	b.Down.W.Cut([]int{features, hi - lo}, tensor.Box{Lo: []int{0, lo}, Hi: []int{features, hi}})
	for _, p := range params {
		if len(p.Shard.Boxes) > 0 {
			p.Lay(tp.Axes(), tensor.Cut)
		} else {
			p.NarrowCounts(tp.Rank() == 0)
		}
	}
	b.Up.Pre, b.Down.Post = &autograd.Copy{Group: tp}, &autograd.Sum{Group: tp}
	b.Drop.At = func(nn.T) tensor.Region { return tensor.Region{Cols: tensor.Span{First: lo, Total: hidden}} }
}

// training is ten steps of two microbatches on dp × tp ranks. change, if not nil, breaks the program before Attach.
type training struct {
	dp, tp int
	change func(b *block, dp, tp, all *dist.Group)
	over   func(dp, all *dist.Group) *dist.Group // what ddp sums over; nil: dp
	loss   func(logits, y nn.T) nn.T
}

// run returns, of rank 0, the losses, the gradients' norms and the elements of the parameters that are whole.
func (c training) run() (res []float64, err error) {
	err = dist.Run(context.Background(), dist.Config{Ranks: c.dp * c.tp, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		mesh, err := r.Mesh(fmt.Sprintf("dp=%d,tp=%d", c.dp, c.tp))
		if err != nil {
			return err
		}
		mine, err := c.rank(r, mesh.Group("dp"), mesh.Group("tp"))
		if r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	return res, err
}

func (c training) rank(r *dist.Rank, dp, tp *dist.Group) (res []float64, err error) {
	b := newBlock()
	b.cut(tp, nn.ParamsOf(b))
	if c.change != nil {
		c.change(b, dp, tp, r.World)
	}
	over := dp
	if c.over != nil {
		over = c.over(dp, r.World)
	}
	var params []*tensor.Param
	if over == nil {
		params = nn.Init(b, r.Device, tensor.Float64, 3)
	} else if params, err = ddp.Attach(over, b, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 100}); err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	for step := range 10 {
		for m := range 2 {
			const rows = 9
			first, n := disttest.Part(rows, dp.Rank(), dp.Size())
			x, y := disttest.Dataset{DType: tensor.Float64, Features: features}.Samples(r.Device, (2*step+m)*rows+first, n)
			loss := c.lossOf(b.Forward(tape.Input(x.WithRows(dp.Rows(rows*m+first, 2*rows)))), y)
			res = append(res, loss.Item())
			if m == 0 {
				tape.Backward(loss, tensor.More())
			} else {
				tape.Backward(loss)
			}
			tape.Reset()
		}
		if err := opt.Step(); err != nil {
			return nil, err
		}
	}
	if err := dp.SumFloats(res); err != nil {
		return nil, err
	}
	res = append(res, opt.GradNorm())
	for _, p := range params {
		if len(p.Shard.Boxes) == 0 || c.tp == 1 {
			res = append(res, tensor.Floats(p.Value)...)
		}
	}
	return res, nil
}

func (c training) lossOf(logits, y nn.T) nn.T {
	if c.loss != nil {
		return c.loss(logits, y)
	}
	return nn.CrossEntropy(logits, y)
}

// Tensor parallel layers under ddp, with dropout, microbatches and clipping, train as one rank does.
func TestTensorParallelEqualsOneRank(t *testing.T) {
	for _, mesh := range [][2]int{{1, 2}, {2, 2}, {1, 3}, {3, 1}} {
		one := training{dp: 1, tp: 1}
		want, err := one.run()
		require.NoError(t, err)
		got, err := training{dp: mesh[0], tp: mesh[1]}.run()
		require.NoError(t, err)
		want = whole(want, mesh[1])
		require.Len(t, got, len(want))
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-10, "dp=%d,tp=%d: number %d", mesh[0], mesh[1], i)
		}
	}
}

// whole leaves out the parameters that tp ranks cut: Up.W, Up.B and Down.W, behind twenty losses, a norm and Norm's two.
func whole(res []float64, tp int) []float64 {
	if tp == 1 {
		return res
	}
	at := 20 + 1 + 2*features
	return append(append([]float64(nil), res[:at]...), res[at+hidden*features+hidden+features*hidden:]...)
}

// Each program has one communication too few or too many, or in the wrong place, and is refused before a step is trained.
func TestWrongProgramsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		training
		want string
	}{
		"no Copy before the columns": {training{change: func(b *block, _, _, _ *dist.Group) { b.Up.Pre = nil }}, "autograd.Copy"},
		"Copy over all ranks":        {training{change: func(b *block, _, _, all *dist.Group) { b.Up.Pre = &autograd.Copy{Group: all} }}, "axis dp"},
		"Copy over dp":               {training{change: func(b *block, dp, _, _ *dist.Group) { b.Up.Pre = &autograd.Copy{Group: dp} }}, "axis dp"},
		"Copy twice":                 {training{change: func(b *block, _, tp, _ *dist.Group) { b.Up.Pre = &twice{&autograd.Copy{Group: tp}} }}, "axis tp"},
		"no Sum behind the rows":     {training{change: func(b *block, _, _, _ *dist.Group) { b.Down.Post = nil }}, "axis tp"},
		"Sum behind the columns":     {training{change: func(b *block, _, tp, _ *dist.Group) { b.Up.Post = &autograd.Sum{Group: tp} }}, "autograd.Sum: "},
		"Sum over all ranks":         {training{change: func(b *block, _, _, all *dist.Group) { b.Down.Post = &autograd.Sum{Group: all} }}, "axis dp"},
		"Sum of what is whole":       {training{loss: func(x, y nn.T) nn.T { return nn.CrossEntropy(x, y) }, change: func(b *block, _, tp, _ *dist.Group) { b.Head.Post = &autograd.Sum{Group: tp} }}, "axis tp"},
		"gathered rows, not columns": {training{change: func(b *block, _, tp, _ *dist.Group) { b.Up.Pre = &autograd.AllGather{Group: tp} }}, "axis tp"},
		"scattered and not gathered": {training{change: func(b *block, _, tp, _ *dist.Group) {
			b.Down.Post = &autograd.ReduceScatter{Group: tp, Dim: 1, Counts: autograd.Shares(features, tp.Size())}
		}}, ""},
		"the norm goes through Copy": {training{change: func(b *block, _, tp, _ *dist.Group) { b.Norm.W.Through(&autograd.Copy{Group: tp}) }}, "axis tp"},
		"dropout without its place":  {training{change: func(b *block, _, _, _ *dist.Group) { b.Drop.At = nil }}, "tensor.Region"},
		"ddp over all ranks":         {training{over: func(_, all *dist.Group) *dist.Group { return all }}, "has of up.weight the part"},
		"no ddp":                     {training{over: func(_, _ *dist.Group) *dist.Group { return nil }}, "attach the parameter with ddp or fsdp"},
		"a mean of its own":          {training{loss: func(x, _ nn.T) nn.T { return x.Square().Mean() }}, "GlobalMean"},
		"a loss of parts":            {training{loss: func(x, _ nn.T) nn.T { return x.Square().Sum().Square() }}, "autograd.Sum"},
		"a penalty on each rank": {training{loss: func(x, y nn.T) nn.T {
			return nn.CrossEntropy(x, y).Add(x.Tape().Input(tensor.FromSlice([]float64{1}, 1)).Sum())
		}}, "once for each rank"},
	} {
		t.Run(name, func(t *testing.T) {
			c.dp, c.tp = 2, 2
			_, err := c.run()
			require.ErrorContains(t, err, c.want)
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
