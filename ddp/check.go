package ddp

import (
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// sameFrozen compares the values of frozen parameters with those of the step that was compared before. All ranks do the same, and have the
// same values.
func (r *reducer) sameFrozen() error {
	for _, p := range r.all {
		if err := r.checks.Frozen(p, p.Value); err != nil {
			return fmt.Errorf("ddp: rank %d: %w", r.g.GlobalRank(), err)
		}
	}
	return nil
}

// sameValues compares parameters and buffers over the ranks that hold the same of them. A buffer that differs would be saved as one rank
// has it.
func (r *reducer) sameValues() error {
	var groups []*dist.Group
	names, values := map[*dist.Group][]string{}, map[*dist.Group][]tensor.Tensor{}
	for _, p := range r.all {
		g := r.over(p)
		if names[g] == nil {
			groups = append(groups, g)
		}
		names[g], values[g] = append(names[g], p.Name()), append(values[g], p.Value)
	}
	var problem error
	for _, g := range groups {
		problem = cmp.Or(problem, dist.SameValues(g, "ddp", names[g], values[g]))
	}
	if len(groups) < 2 && (len(groups) == 0 || groups[0] == r.g) {
		return problem
	}
	return dist.Agree(r.g, "ddp", nil, problem) // other ranks are in other groups
}
