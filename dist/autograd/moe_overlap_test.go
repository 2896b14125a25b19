package autograd_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// dispatch sends rows to the ranks of their experts. It returns the rows that come, and the output of the shared expert for x.
func (m *moeModel) dispatch(x, rows nn.T, p *routing) (came, shared nn.T) {
	t := x.Tape()
	if m.log == nil {
		came = t.Apply(&autograd.AllToAll{Group: m.ep, Send: p.send, Recv: p.recv}, rows)
		return came, m.Shared.Forward(x).GELU()
	}
	tr := &travel{g: m.ep, send: p.send, recv: p.recv, log: m.log}
	came = t.Apply(&depart{tr}, rows)
	shared = t.Apply(&beside{tr}, m.Shared.Forward(x).GELU())
	return t.Apply(&arrive{tr}, came), shared
}

// travel is a dispatch in two Functions, so that other work can be done between them, forward and backward.
type travel struct {
	g          *dist.Group
	send, recv []int
	log        func(what string)
	work       dist.Work
	grad       nn.T // gradient of the sent rows: arrive issues its exchange, depart returns it
}

// issue begins to exchange the rows of x.
func (f *travel) issue(c *tensor.Ctx, x nn.T, send, recv []int) nn.T {
	n := 0
	for _, k := range recv {
		n += k
	}
	y := c.Tape().Keep(c.New(x.DType(), n, x.Dim(1)))
	f.work = f.g.AllToAllV(y, x, recv, send)
	return y
}

type depart struct{ *travel }

func (*depart) Name() string { return "depart" }

func (f *depart) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(f.g.Axes(), tensor.Varying, tensor.Cut)
	return in[:1], err
}

func (f *depart) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	f.log("depart")
	return f.issue(c, in[0], f.send, f.recv) // arrive waits
}

func (f *depart) Backward(c *tensor.Ctx, _ nn.T, grads []nn.T) {
	f.log("depart backward")
	grads[0] = f.grad
	c.Pending(0, f.work.Pending())
}

type arrive struct{ *travel }

func (*arrive) Name() string { return "arrive" }

func (f *arrive) Forward(_ *tensor.Ctx, in []nn.T) nn.T {
	f.log("arrive")
	must(f.work.Wait())
	return in[0]
}

func (f *arrive) Backward(c *tensor.Ctx, g nn.T, grads []nn.T) {
	f.log("arrive backward")
	f.grad = f.issue(c, g, f.recv, f.send)
	grads[0] = g
}

// beside notes when the shared expert works.
type beside struct{ *travel }

func (*beside) Name() string { return "beside" }

func (f *beside) Forward(_ *tensor.Ctx, in []nn.T) nn.T {
	f.log("shared")
	return in[0]
}

func (f *beside) Backward(_ *tensor.Ctx, g nn.T, grads []nn.T) {
	f.log("shared backward")
	grads[0] = g
}

// The shared expert works while tokens and their gradients are being sent, and changes no bit.
func TestSharedExpertBesideTheDispatch(t *testing.T) {
	c := moeJob(2, 0, new(atomic.Int64))
	c.Mesh = "dp=2,ep=2"
	want := c.run(t)
	var log []string
	c.change = func(n model, _ *ranks) {
		m := n.(*moeModel)
		m.log = func(what string) {
			if m.all.Rank() == 0 {
				log = append(log, what)
			}
		}
	}
	disttest.RequireEqual(t, want, c.run(t), 0)
	require.Equal(t, []string{"depart", "shared", "arrive", "arrive backward", "shared backward", "depart backward"}, log[:6])
	require.Len(t, log, 6*20)
}
