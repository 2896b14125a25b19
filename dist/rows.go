package dist

import "github.com/ringo-ml/ringo/tensor"

// Rows describes a tensor that holds consecutive rows of a batch, from row first on. The ranks of g have total rows together. Use it as
// x.WithRows(g.Rows(first, total)). A data.Loader does so for its batches; batches made by hand need it.
func (g *Group) Rows(first, total int) tensor.Rows {
	over := g.Axes()
	tail := over & g.grid.later(g.GlobalRank())
	return tensor.Rows{First: first, Stride: 1, Total: total, Over: over, Head: over &^ tail, Tail: tail}
}
