package dist

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Rows says that a tensor of this rank holds the rows from first on, one after another, of the total rows that the ranks of g have
// together: x.WithRows(g.Rows(first, total)). A data.Loader says it of its batches; batches made by hand need it.
func (g *Group) Rows(first, total int) tensor.Rows {
	return tensor.Rows{First: first, Stride: 1, Total: total, Over: axesOf(g)}
}

// RowCheck compares, in the first step, the rows that ranks had with the total that their inputs say (tensor.Rows.Total), by which
// losses divide: a wrong total makes each gradient wrong by a factor, and nothing else shows it. Owners of gradients have one, give it
// what tensor.RowCounter tells them, and ask it at the end of the last Backward of the step.
type RowCheck struct {
	mine rowCount
	open bool // a Backward has begun
	done bool
}

type rowCount struct {
	Rank, Own, Total int
	Over             tensor.Axes
	Unknown          bool // a Backward failed and was begun anew: rows count twice
}

// Count adds a microbatch, whose Backward begins.
func (c *RowCheck) Count(own, total int, over tensor.Axes) {
	c.mine.Unknown = c.mine.Unknown || c.open
	c.open = true
	c.mine.Own += own
	c.mine.Total, c.mine.Over = total, over
}

// Check ends a Backward. The first last one of a step compares, over the ranks of groups, each of which joins what those before it have.
// Where rows are shared out over other axes than those of the ranks, as under context parallelism on top, it compares nothing. It is
// collective.
func (c *RowCheck) Check(last bool, groups ...*Group) error {
	if c.open = false; !last || c.done {
		return nil
	}
	c.done = true
	all := []rowCount{c.mine}
	all[0].Rank = groups[0].c.rank
	axes := tensor.Axes(0)
	for _, g := range groups {
		axes |= axesOf(g)
		if g.Size() == 1 {
			continue
		}
		parts, err := AllGatherObject(g, all)
		if err != nil {
			return err
		}
		all = all[:0]
		for _, p := range parts {
			all = append(all, p...)
		}
	}
	if w := groups[0].c.world.Load(); axes == 0 && (w == nil || len(all) != w.Size()) {
		return nil // a part of the job, of which nobody knows whether it is the one over which rows are shared out
	}
	return agreeOnRows(all, axes)
}

// axesOf returns the axes of the job along which the ranks of g differ: none where groups do not know them.
func axesOf(g *Group) tensor.Axes {
	if t, ok := any(g).(interface{ Axes() tensor.Axes }); ok {
		return t.Axes()
	}
	return 0
}

func agreeOnRows(all []rowCount, axes tensor.Axes) error {
	sum, first := 0, all[0]
	for _, r := range all {
		switch {
		case r.Total != first.Total:
			return fmt.Errorf("dist: rank %d says that the global batch has %d rows, rank %d that it has %d (tensor.Rows.Total; 0 where no input has Rows)",
				first.Rank, first.Total, r.Rank, r.Total)
		case r.Unknown || r.Over != axes:
			return nil
		}
		sum += r.Own
	}
	if sum == first.Total {
		return nil
	}
	return fmt.Errorf("dist: the ranks had %d rows in the first step, and their inputs say that the global batch has %d (tensor.Rows.Total): losses divide by that", sum, first.Total)
}
