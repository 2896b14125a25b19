package dist

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/tensor"
)

// grid is the ranks of a job as a grid. Tensors have types along its axes (see tensor.Types). It is the first Mesh of the group that all
// others come from, or a single axis of all ranks, if Axes of that group is called before there is a Mesh. It never changes then, because
// parameters and batches hold the numbers of its axes. All groups that come from one group share its grid.
type grid struct {
	mu    sync.Mutex
	n     int   // ranks
	ranks []int // world ranks, the last axis varies fastest; nil: not known yet
	names []string
	sizes []int // each more than 1
}

// maxAxes is how many axes a grid can have.
const maxAxes = 8

// fix sets the axes to those of a mesh over ranks. It does nothing if they are set, or if the mesh is not over all ranks. Axes of one
// rank are left out.
func (g *grid) fix(ranks []int, names []string, sizes []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ranks != nil || len(ranks) != g.n {
		return
	}
	g.ranks = ranks
	for i, n := range sizes {
		if n > 1 {
			g.names, g.sizes = append(g.names, names[i]), append(g.sizes, n)
		}
	}
	if len(g.names) > maxAxes {
		g.names, g.sizes = []string{"world"}, []int{g.n}
	}
}

// axes returns the axes along which members differ, if members are all ranks along these axes; otherwise none.
func (g *grid) axes(members []int) (a tensor.Axes) {
	if g.mu.Lock(); g.ranks == nil {
		g.mu.Unlock()
		g.fix(members, []string{"world"}, []int{len(members)})
		g.mu.Lock()
	}
	defer g.mu.Unlock()
	first := slices.Index(g.ranks, members[0])
	for _, m := range members[1:] {
		place := slices.Index(g.ranks, m)
		if place < 0 || first < 0 {
			return 0
		}
		a |= g.differ(first, place)
	}
	whole := 1
	for i, n := range g.sizes {
		if a>>i&1 == 1 {
			whole *= n
		}
	}
	if whole != len(members) {
		return 0
	}
	return a
}

// differ returns the axes along which two positions differ.
func (g *grid) differ(x, y int) (a tensor.Axes) {
	for i := len(g.sizes) - 1; i >= 0; i-- {
		n := g.sizes[i]
		if x%n != y%n {
			a |= 1 << i
		}
		x, y = x/n, y/n
	}
	return a
}

// Axes returns the axes of the job along which the members of g differ. tensor.Rows.Over, tensor.Param.Lay and the types of Functions use
// them. The axes come from the first Mesh over all ranks. Without a Mesh there is one axis, "world", of all ranks; if Axes is called
// before the first Mesh, it stays so. A group has axes if its members are all ranks along them, however it was made. Any other group (a
// part of an axis, a diagonal) has none, like a group of one rank. Types are not checked along it.
func (g *Group) Axes() tensor.Axes { return g.must().grid.axes(g.ranks) }

// sees is the advice for each kind of type error.
var sees = map[tensor.Clash]string{
	tensor.ClashRows:         "attach the parameter with ddp or fsdp over this axis, or let it go through autograd.Copy (Param.Through)",
	tensor.ClashFeatures:     "see autograd.Copy for what is the same, autograd.Sum for parts of a sum",
	tensor.ClashRowsFeatures: "see autograd.AllGather and autograd.AllToAll",
	tensor.ClashOnce:         "see autograd.Copy and Param.Through",
	tensor.ClashPart:         "see autograd.Sum",
	tensor.ClashNonlinear:    "see autograd.Sum",
	tensor.ClashAdded:        "see autograd.Sum",
	tensor.ClashMask:         "see tensor.Region",
	tensor.ClashWhole:        "see tp.CrossEntropy, or scale a Sum by a count of all features",
	tensor.ClashGrad:         "send the types of Tape.GradOf along (Types.Bytes), and see Tensor.WithTypes",
}

// explain adds to a type error what package tensor does not know: the name of the axis, and what to do. failed is what a rank returned or
// panicked with.
func (r *Rank) explain(failed any) {
	err, ok := failed.(error)
	var e *tensor.TypeError
	if !ok || !errors.As(err, &e) || e.Name != "" {
		return
	}
	e.Name, e.See = r.c.world.Load().grid.name(e.Axis), sees[e.Clash]
}

// name returns the name of an axis, or its number.
func (g *grid) name(axis int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if axis < len(g.names) {
		return g.names[axis]
	}
	return fmt.Sprint(axis)
}
