package dist

import "github.com/ringo-ml/ringo/tensor"

// Rows says that a tensor of this rank holds the rows from first on, one after another, of the total rows that the ranks of g have
// together: x.WithRows(g.Rows(first, total)). A data.Loader says it of its batches; batches made by hand need it.
func (g *Group) Rows(first, total int) tensor.Rows {
	return tensor.Rows{First: first, Stride: 1, Total: total, Over: g.Axes()}
}
