package disttest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// faulty is a Function with a wrong Backward or wrong types.
type faulty struct {
	disttest.Communicating
	backward func(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor)
	to       func(in tensor.Types) tensor.Types
}

func (f *faulty) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.backward == nil {
		f.Communicating.Backward(c, g, grads)
		return
	}
	f.backward(c, g, grads)
}

func (f *faulty) Types(in []tensor.Types, rows tensor.Axes) ([]tensor.Types, error) {
	if f.to == nil {
		return f.Communicating.Types(in, rows)
	}
	in[0] = f.to(in[0])
	return in[:1], nil
}

func first(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g.Scale(0).Add(g.Slice(0, 0, 1).Slice(1, 0, 1))
}

// Adjoint finds a Backward without its all-reduce, one with a wrong factor, and types that do not describe the Function.
func TestAdjointFindsFaults(t *testing.T) {
	const n = 3
	identity := func(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }
	says := func(g *dist.Group, k tensor.Kind) func(in tensor.Types) tensor.Types {
		return func(in tensor.Types) tensor.Types {
			if a, ok := any(g).(interface{ Axes() tensor.Axes }); ok {
				in = in.With(a.Axes(), k)
			}
			return in
		}
	}
	slice := func(g *dist.Group) func(c *tensor.Ctx, grad tensor.Tensor, grads []tensor.Tensor) {
		return func(_ *tensor.Ctx, grad tensor.Tensor, grads []tensor.Tensor) {
			m := grad.Dim(0) / n
			grads[0] = grad.Slice(0, g.Rank()*m, (g.Rank()+1)*m)
		}
	}
	const unlike, differ = "Backward is not the adjoint of Forward", "differ in element"
	for _, c := range []struct {
		name string
		kind tensor.Kind
		f    func(g *dist.Group) *faulty
		want string // "": it is right
	}{
		{"copy", tensor.Invariant, func(g *dist.Group) *faulty { return &faulty{Communicating: &autograd.Copy{Group: g}} }, ""},
		{"copy without its all-reduce", tensor.Invariant, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.Copy{Group: g}, backward: identity}
		}, differ},
		{"sum that gives n times the gradient", tensor.Partial, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.Sum{Group: g}, backward: func(_ *tensor.Ctx, grad tensor.Tensor, grads []tensor.Tensor) {
				grads[0] = grad.Scale(n)
			}}
		}, unlike},
		{"sum that gives all the first gradient", tensor.Partial, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.Sum{Group: g}, backward: first}
		}, unlike},
		{"sum whose Backward sums, too", tensor.Partial, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.Sum{Group: g}, backward: (&autograd.Copy{Group: g}).Backward}
		}, unlike},
		{"gather whose Backward slices", tensor.Varying, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.AllGather{Group: g}, backward: slice(g)}
		}, unlike},
		{"the same, which says that it gives invariant", tensor.Varying, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.AllGather{Group: g}, backward: slice(g), to: says(g, tensor.Invariant)}
		}, ""},
		{"copy that says invariant", tensor.Invariant, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.Copy{Group: g}, to: says(g, tensor.Invariant)}
		}, unlike},
		{"sum that says replicated", tensor.Partial, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.Sum{Group: g}, to: says(g, tensor.Replicated)}
		}, differ},
		{"scatter that says replicated", tensor.Partial, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.ReduceScatter{Group: g}, to: says(g, tensor.Replicated)}
		}, differ},
		{"scatter of what is replicated", tensor.Replicated, func(g *dist.Group) *faulty {
			return &faulty{Communicating: &autograd.ReduceScatter{Group: g}, to: says(g, tensor.Varying)}
		}, ""}, // for n times the value: on each rank the gradient is a part of the sum, and all parts are equal
		{"copy of what varies", tensor.Varying, func(g *dist.Group) *faulty { return &faulty{Communicating: &autograd.Copy{Group: g}} },
			"refuses the kinds"},
	} {
		err := disttest.AdjointError(n, func(r *dist.Rank) disttest.Communicating { return c.f(r.World) },
			disttest.Operand{Kind: c.kind, Dims: disttest.Dims(6, 2)})
		if c.want == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.want, c.name)
		}
	}
}
