package tp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Naive divides every parameter of a model over the ranks of g, gathers it wherever it is used, and computes everything on every rank: it
// says in a line what Parallelize must equal, and saves nothing but memory for parameters. Call it where Parallelize would be called. A
// parameter whose first dimension is less than the ranks is whole on all of them.
func Naive(model any, g *dist.Group) error {
	return tensor.Try(func() {
		for _, x := range nn.ParamsOf(model) {
			if x.Global()[0] < g.Size() {
				continue
			}
			x.Place(g.Axis(), layout.Division{})
			x.Through(&autograd.Gather{Group: g, Counts: layout.Shares(make([]int, g.Size()), x.Global()[0])})
		}
	})
}
