package dist

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/where"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// grid is the ranks of a job as a grid. Tensors have types along its axes (see tensor.Types). It is the first Mesh of the group that all
// others come from, or a single axis of all ranks, if Axes of that group is called before there is a Mesh. It never changes then, because
// parameters and batches hold the numbers of its axes. All groups that come from one group share its grid.
type grid struct {
	mu    sync.Mutex
	n     int   // ranks
	ranks []int // world ranks, the last axis varies fastest; nil: not known yet
	names []string
	sizes []int  // each more than 1
	by    string // what fixed the axes
}

// maxAxes is how many axes a grid can have.
const maxAxes = 8

// fix sets the axes to those of a mesh. If they are set, each axis of the mesh must be some of them: otherwise types would not be checked
// along it. It does nothing for a mesh that is not over all ranks.
func (g *grid) fix(m *Mesh) error {
	if g.mu.Lock(); g.ranks == nil && len(m.g.ranks) == g.n {
		defer g.mu.Unlock()
		return g.set(m.spec, m.g.ranks, m.names, m.sizes)
	}
	g.mu.Unlock()
	for i, n := range m.sizes {
		if n > 1 && len(m.g.ranks) == g.n && g.axes(m.g.world(m.along(1<<i))) == 0 {
			return fmt.Errorf("dist: mesh %q: its axis %s is no axis of the job, which are %s: %s fixed them. "+
				"Make the mesh with all axes first: before other meshes, Axes, Rows, and loaders over World", m.spec, m.names[i], g.spec(), g.by)
		}
	}
	return nil
}

// set sets the axes. Those of one rank are left out. The caller holds g.mu.
func (g *grid) set(by string, ranks []int, names []string, sizes []int) error {
	var long []string
	var sized []int
	for i, n := range sizes {
		if n > 1 {
			long, sized = append(long, names[i]), append(sized, n)
		}
	}
	if len(long) > maxAxes {
		return fmt.Errorf("dist: mesh %q has %d axes of more than one rank; at most %d are allowed", by, len(long), maxAxes)
	}
	g.by, g.ranks, g.names, g.sizes = fmt.Sprintf("mesh %q", by), ranks, long, sized
	return nil
}

// world makes all ranks a single axis, if there are no axes yet.
func (g *grid) world(ranks []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ranks != nil || len(ranks) != g.n {
		return
	}
	g.by, g.ranks = "a use of all ranks", ranks
	if line := where.Call(); line != "" {
		g.by += " (at " + line + ")"
	}
	if g.n > 1 {
		g.names, g.sizes = []string{"world"}, []int{g.n}
	}
}

// spec is the axes as a Mesh writes them.
func (g *grid) spec() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	axes := make([]string, len(g.names))
	for i, name := range g.names {
		axes[i] = fmt.Sprintf("%s=%d", name, g.sizes[i])
	}
	return strings.Join(axes, ",")
}

// axes returns the axes along which members differ, if members are all ranks along these axes; otherwise none.
func (g *grid) axes(members []int) (a tensor.Axes) {
	g.world(members)
	g.mu.Lock()
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

// later returns the axes along which a rank is not the first.
func (g *grid) later(rank int) tensor.Axes {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.differ(0, slices.Index(g.ranks, rank))
}

// Axes returns the axes of the job along which the members of g differ. tensor.Rows.Over, tensor.Param.SumOver and the types of Functions
// use them. The axes come from the first Mesh over all ranks. Without a Mesh there is one axis, "world", of all ranks; if Axes is called
// before the first Mesh, it stays so, and a Mesh with other axes is an error. A group has axes if its members are all ranks along them,
// however it was made. Any other group (a part of an axis, a diagonal) has none, like a group of one rank. Types are not checked along it.
func (g *Group) Axes() tensor.Axes { return g.must().grid.axes(g.ranks) }

// First reports whether this rank is the first along all of axes: the one that counts where ranks have the same (see tensor.Tensor.Whole).
func (g *Group) First(axes tensor.Axes) bool { return g.must().grid.later(g.GlobalRank())&axes == 0 }

// Axis returns the axes and this rank's place on them, as tensor.Param.Place needs it.
func (g *Group) Axis() layout.Axis {
	return layout.Axis{Axes: g.Axes(), Rank: g.Rank(), Ranks: g.Size()}
}

// sees is the advice for each kind of type error.
var sees = map[typing.Clash]string{
	typing.ClashRows:         "attach the parameter with ddp or fsdp over this axis, or let it go through autograd.Copy (Param.Through)",
	typing.ClashFeatures:     "see autograd.Copy for what is the same, autograd.Sum for parts of a sum",
	typing.ClashRowsFeatures: "see autograd.AllGather and autograd.AllToAll",
	typing.ClashOnce:         "see autograd.Copy and Param.Through; in a pipeline, does the batch have the Rows of Group.Rows?",
	typing.ClashPart:         "see autograd.Sum",
	typing.ClashNonlinear:    "see autograd.Sum",
	typing.ClashAdded:        "see autograd.Sum",
	typing.ClashMask:         "see tensor.Region",
	typing.ClashWhole: "gather them first, tape.Apply(&autograd.Gather{Group: g, Dim: -1}, x), or tp's Parallel.Logits; a loss of them is " +
		"tp.CrossEntropy's, and a mean of them a Sum scaled by a count of all features",
	typing.ClashGrad: "send the types of Tape.GradOf along (Types.Bytes), and see Tensor.WithTypes",
}

// explain adds to a type error what package tensor does not know: the name of the axis, and what to do. failed is what a rank returned or
// panicked with.
func (r *Rank) explain(failed any) {
	var e *typing.Error
	if err, ok := failed.(error); ok && errors.As(err, &e) && e.Name == "" {
		e.Name, e.See = r.c.world.Load().grid.name(e.Axis), sees[e.Clash]
	}
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
