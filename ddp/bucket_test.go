package ddp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// lengths notes how many elements each bucket has.
type lengths struct{ elems []int }

func (l *lengths) Start(b *ddp.Bucket) dist.Work {
	l.elems = append(l.elems, b.Grad.Len())
	return b.Group.AllReduce(b.Grad, dist.Sum)
}
func (*lengths) Finish(*ddp.Bucket) {}

// crossed has its fields in another order than it uses them, and the ranks use them in different orders.
type crossed struct {
	Big, Fixed, Small, Last *nn.Linear
	bigFirst                bool
}

func (c *crossed) Forward(x nn.T) nn.T {
	x = c.Fixed.Forward(c.Last.Forward(x))
	if c.bigFirst {
		return c.Big.Forward(x).Sum().Add(c.Small.Forward(x).Sum())
	}
	return c.Small.Forward(x).Sum().Add(c.Big.Forward(x).Sum())
}

// Buckets are cut in the reverse order of fields, and after the first step in the order of rank 0's gradients. The first
// one is small. What was frozen before is in none.
func TestBucketLayout(t *testing.T) {
	const big, small, last = 300 * 1000, 20 * 1000, 1000 * 10
	err := disttest.OnRanks(2, func(r *dist.Rank) error {
		model := &crossed{nn.NewLinear(1000, 300), nn.NewLinear(1000, 1000), nn.NewLinear(1000, 20), nn.NewLinear(10, 1000), r.World.Rank() == 0}
		for _, l := range []*nn.Linear{model.Big, model.Small, model.Last} {
			l.B = nil
		}
		model.Fixed.W.Freeze()
		model.Fixed.B.Freeze()
		hook := &lengths{}
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{Hook: hook}))
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 1e-6})
		tape := tensor.NewTape(r.Device)
		for range 3 {
			tape.Backward(model.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, 1, 10).WithRows(r.World.Rows(r.World.Rank(), 2)))))
			disttest.OK(opt.Step())
			tape.Reset()
		}
		// Last and Small together; Big alone, as it is beyond 1 MiB. Then Small, Big, Last: that of rank 0.
		want := []int{last + small, big, small, big + last, small, big + last}
		if got := hook.elems; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("buckets of %v, want %v", got, want)
		}
		return nil
	})
	require.NoError(t, err)
}

// twoTypes computes its first layer in float64 and its second in float32.
type twoTypes struct{ A, B *nn.Linear }

func (m *twoTypes) Forward(x nn.T) nn.T {
	return m.B.Forward(m.A.Forward(x.Cast(tensor.Float64)).Tanh().Cast(tensor.Float32))
}

func TestParametersOfTwoTypes(t *testing.T) {
	j := job{training: simple(2, 5, 10), model: func() nn.Layer { return &twoTypes{nn.NewLinear(19, 7), nn.NewLinear(7, 5)} }}
	with := func(attach attacher) attacher {
		return func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
			for i, p := range nn.ParamsOf(model) {
				p.Make(g.Device(), []tensor.DType{tensor.Float64, tensor.Float32}[i/2], 7)
			}
			return attach(g, model, c)
		}
	}
	j.attach = with(ddp.Naive)
	want := j.run(t)
	j.attach = with(ddp.Attach)
	disttest.RequireEqual(t, want, j.run(t), 0)
}
