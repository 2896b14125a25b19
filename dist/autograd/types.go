package autograd

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// axesOf returns the axes of the job along which the ranks of g differ: none where groups do not know them.
func axesOf(g *dist.Group) tensor.Axes {
	if t, ok := any(g).(interface{ Axes() tensor.Axes }); ok {
		return t.Axes()
	}
	return 0
}

// Types wants what is invariant, and makes it replicated.
func (f *Copy) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, axesOf(f.Group), tensor.Invariant, tensor.Replicated)
}

// Types wants a partial sum, or parts whose products are one, and makes it invariant.
func (f *Sum) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, axesOf(f.Group), tensor.Partial, tensor.Invariant)
}

// Types wants what varies over rows, or is cut, and makes it replicated.
func (f *AllGather) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	axes := axesOf(f.Group)
	if axes != 0 && in[0].On(tensor.Cut)&axes == axes {
		return convert(in, axes, tensor.Cut, tensor.Replicated)
	}
	return convert(in, axes, tensor.Varying, tensor.Replicated)
}

// Types wants a partial sum, or parts whose products are one, and makes it vary over rows.
func (f *ReduceScatter) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, axesOf(f.Group), tensor.Partial, tensor.Varying)
}

// Types makes what varies over rows cut, and what is cut vary over rows.
func (f *AllToAll) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	axes := axesOf(f.Group)
	if axes != 0 && in[0].On(tensor.Cut)&axes == axes {
		return convert(in, axes, tensor.Cut, tensor.Varying)
	}
	return convert(in, axes, tensor.Varying, tensor.Cut)
}

func convert(in []tensor.Types, axes tensor.Axes, from, to tensor.Kind) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(axes, from, to)
	return in[:1], err
}
