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

// tied is what a rank has of a parameter, and how it changes it.
type tied struct {
	Cut, Rule string
	Frozen    bool
}

// differs says in what copies differ, if they do.
func (a tied) differs(b tied) string {
	switch {
	case a.Frozen != b.Frozen:
		return "only one of them has frozen it: copies of one parameter must change alike; call its Freeze on both, before Attach"
	case a.Cut != b.Cut && !a.Frozen:
		return fmt.Sprintf("not cut alike: they have %s, and %s; with fsdp, make it a unit of its own", a.Cut, b.Cut)
	case a.Rule != b.Rule && a.Rule != "" && b.Rule != "":
		return fmt.Sprintf("their optimizers differ: %s, and %s; copies of one parameter must change alike", a.Rule, b.Rule)
	}
	return ""
}

// findTies makes a group for each parameter that several ranks train. It is collective.
func (p *Pipeline) findTies() error {
	mine := map[string]tied{}
	for _, x := range p.Params {
		lo, hi := x.Placement().Range()
		has := tied{Cut: fmt.Sprintf("elements %d to %d of %v", lo, hi, x.Placement().Boxes()), Frozen: x.Frozen()}
		if p.Optimizer != nil {
			has.Rule = p.Optimizer.RuleOf(x)
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
			if what := all[ranks[0]][name].differs(all[r][name]); what != "" {
				return fmt.Errorf("pp: %s is on ranks %d and %d of the pipeline, and %s", name, ranks[0], r, what)
			}
		}
		if len(ranks) == 1 || all[ranks[0]][name].Frozen {
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
