package parallel

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// headNorm is a norm of each head, of which g's ranks have others. To the norm they are rows, which it takes one by one.
type headNorm struct {
	nn.Layer
	g *dist.Group
}

// divideNorm returns the layer to put in n's place; nil for nil.
func divideNorm(n nn.Layer, g *dist.Group) nn.Layer {
	if n == nil {
		return nil
	}
	for _, w := range nn.Within(n) {
		w.Through(&autograd.Copy{Group: g}) // each rank's gradient is that of its heads
	}
	return &headNorm{n, g}
}

// Forward returns the norms of heads x [heads, features].
func (n *headNorm) Forward(x nn.T) nn.T {
	x = x.Tape().Apply(&retyped{n.g, tensor.Cut, tensor.Varying}, x)
	return x.Tape().Apply(&retyped{n.g, tensor.Varying, tensor.Cut}, n.Layer.Forward(x))
}

// retyped is the identity, and says how ranks' parts belong together.
type retyped struct {
	g        *dist.Group
	from, to tensor.Kind
}

// Name is for messages.
func (*retyped) Name() string { return "heads" }

// Forward returns in[0].
func (*retyped) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }

// Backward returns g.
func (*retyped) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// Types says which axes have heads.
func (f *retyped) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = in[0].With(in[0].On(f.from)&f.g.Axes(), f.to)
	return in[:1], nil
}
