package pp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// tie is a parameter that several ranks have.
type tie struct {
	p     *tensor.Param
	group *dist.Group
}

// findTies makes a group for each parameter that several ranks train. It is collective.
func (p *Pipeline) findTies() error {
	mine := map[string][3]string{} // what this rank has of each, how it is changed, and whether it is frozen
	for _, x := range p.Params {
		lo, hi := x.Placement().Range()
		has := [3]string{fmt.Sprintf("elements %d to %d of %v", lo, hi, x.Placement().Boxes())}
		if x.Frozen() {
			has[2] = "frozen"
		}
		if p.Optimizer != nil {
			has[1] = p.Optimizer.RuleOf(x)
		}
		mine[x.Name()] = has
	}
	all, err := dist.AllGatherObject(p.Group, mine)
	if err != nil {
		return err
	}
	holders := map[string][]int{}
	for rank, has := range all {
		for name := range has {
			holders[name] = append(holders[name], rank)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(holders)) {
		ranks, color := holders[name], -1
		for _, r := range ranks[1:] {
			a, b := all[ranks[0]][name], all[r][name]
			if a[2] != b[2] {
				return fmt.Errorf("pp: %s is on ranks %d and %d of the pipeline, and only one of them has frozen it: copies of one parameter must "+
					"change alike; call its Freeze on both, before Attach", name, ranks[0], r)
			}
			if a[0] != b[0] && a[2] == "" {
				return fmt.Errorf("pp: %s is on ranks %d and %d of the pipeline, and not cut alike: they have %s, and %s; with fsdp, make it a unit "+
					"of its own", name, ranks[0], r, a[0], b[0])
			}
			if a[1] != b[1] && a[1] != "" && b[1] != "" {
				return fmt.Errorf("pp: %s is on ranks %d and %d of the pipeline, and their optimizers differ: %s, and %s; copies of one parameter "+
					"must change alike", name, ranks[0], r, a[1], b[1])
			}
		}
		if len(ranks) == 1 || all[ranks[0]][name][2] != "" {
			continue
		}
		if slices.Contains(ranks, p.Group.Rank()) {
			color = 0
		}
		g, err := p.Group.Split(color, 0)
		if err != nil {
			return err
		}
		p.ties = append(p.ties, tie{p.Params.ByName(name), g})
	}
	p.ties = slices.DeleteFunc(p.ties, func(t tie) bool { return t.group == nil }) // of other ranks
	return nil
}

// sumTies adds up the gradients of tied parameters over their stages, when all microbatches are done and their owners have summed them.
func (p *Pipeline) sumTies() error {
	for _, t := range p.ties {
		if err := t.group.AllReduce(t.p.Grad, dist.Sum).Wait(); err != nil {
			return err
		}
	}
	return nil
}

// compare returns an error, on all ranks, unless the optimizers have done the same first steps on all of them.
func (p *Pipeline) compare() error {
	mine := [2]string{fmt.Sprint(p.scale)} // texts: JSON has no NaN
	if p.Optimizer != nil {
		mine[1] = fmt.Sprint(p.Optimizer.GradNorm())
	}
	all, err := dist.AllGatherObject(p.Group, mine)
	if err != nil {
		return err
	}
	for i, differ := range [...]string{"losses are scaled by %s on a rank of the pipeline, and by %s on another one: Scale of their " +
		"optimizers' Scalers must be the same", "the norm of gradients is %s on a rank of the pipeline and %s on another one: stages clip by " +
		"the norm of the whole model; set Norm of the optimizer to r.World"} {
		first := ""
		for _, x := range all {
			if first = cmp.Or(first, x[i]); x[i] != "" && x[i] != first {
				return fmt.Errorf("pp: "+differ, first, x[i])
			}
		}
	}
	for _, t := range p.ties {
		if err := dist.SameValues(t.group, "pp", []string{t.p.Name()}, []tensor.Tensor{t.p.Local}); err != nil {
			return err
		}
	}
	return nil
}
