package ddp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// sameFrozen compares the values of frozen parameters with those of the step that was compared before. All ranks do the same, and have the
// same values.
func (s *sync) sameFrozen() error {
	for _, p := range s.all {
		if err := s.checks.Frozen(p, p.Value); err != nil {
			return fmt.Errorf("ddp: rank %d: %w", s.g.Ranks()[s.g.Rank()], err)
		}
	}
	return nil
}

// sameValues compares parameters and buffers over the ranks that hold the same of them. A buffer that differs would be saved as one rank
// has it.
func (s *sync) sameValues() error {
	var groups []*dist.Group
	names, values := map[*dist.Group][]string{}, map[*dist.Group][]tensor.Tensor{}
	for _, p := range s.all {
		g := s.over(p)
		if names[g] == nil {
			groups = append(groups, g)
		}
		names[g], values[g] = append(names[g], p.Name()), append(values[g], p.Value)
	}
	var problem error
	for _, g := range groups {
		if err := dist.SameValues(g, "ddp", names[g], values[g]); err != nil && problem == nil {
			problem = err
		}
	}
	if len(groups) < 2 && (len(groups) == 0 || groups[0] == s.g) {
		return problem
	}
	return dist.Agree(s.g, "ddp", nil, problem) // other ranks are in other groups
}
