package autograd

import "github.com/ringo-ml/ringo/tensor"

// Types takes an invariant tensor and makes it replicated.
func (f *Copy) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, f.Group.Axes(), tensor.Invariant, tensor.Replicated)
}

// Types takes a partial sum, or a cut tensor (products of its parts are partial sums), and makes it invariant.
func (f *Sum) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, f.Group.Axes(), tensor.Partial, tensor.Invariant)
}

// Types takes a partial sum, or a cut tensor (products of its parts are partial sums), and makes it replicated.
func (f *AllReduce) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, f.Group.Axes(), tensor.Partial, tensor.Replicated)
}

// Types takes a tensor that varies over rows, or is cut, and makes it replicated.
func (f *AllGather) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	axes := f.Group.Axes()
	if axes != 0 && in[0].On(tensor.Cut)&axes == axes {
		return convert(in, axes, tensor.Cut, tensor.Replicated)
	}
	return convert(in, axes, tensor.Varying, tensor.Replicated)
}

// Types takes a partial sum, or a cut tensor (products of its parts are partial sums), and makes it vary over rows.
func (f *ReduceScatter) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return convert(in, f.Group.Axes(), tensor.Partial, tensor.Varying)
}

// Types makes a tensor that varies over rows cut, and a cut one vary over rows.
func (f *AllToAll) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	axes := f.Group.Axes()
	if axes != 0 && in[0].On(tensor.Cut)&axes == axes {
		return convert(in, axes, tensor.Cut, tensor.Varying)
	}
	return convert(in, axes, tensor.Varying, tensor.Cut)
}

func convert(in []tensor.Types, axes tensor.Axes, from, to tensor.Kind) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(axes, from, to)
	return in[:1], err
}

// Moves says that the parts of the ranks are joined along Dim.
func (f *AllGather) Moves() (joins, divides int) { return f.Dim, tensor.NoDim }

// Moves says that the parts of the ranks are joined along Dim.
func (f *Gather) Moves() (joins, divides int) { return f.Dim, tensor.NoDim }

// Moves says that ranks get parts along Dim.
func (f *ReduceScatter) Moves() (joins, divides int) { return tensor.NoDim, f.Dim }

// Moves says that ranks get parts along the first dimension.
func (f *Split) Moves() (joins, divides int) { return tensor.NoDim, 0 }

// Moves says that parts are joined along Concat, and ranks get parts along Split.
func (f *AllToAll) Moves() (joins, divides int) { return f.Concat, f.Split }
