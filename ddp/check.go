package ddp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// check compares, at the end of a step, what ranks must agree on: in the first one, and then in every so many.
type check struct {
	every int // 0: the first step only
	step  int
	rows  *dist.RowCheck // nil: after the first step
	begun bool           // a Backward runs
}

// begin forgets what a Backward that failed has noted.
func (c *check) begin() {
	if c.begun && c.rows != nil {
		c.rows.Forget()
	}
	c.begun = true
}

func (c *check) note(p *tensor.Param) {
	if c.rows != nil {
		c.rows.Note(p)
	}
}

// check runs the comparisons of a step that is complete.
func (s *sync) check() error {
	c := &s.checks
	step := c.step
	c.step++
	if step > 0 && (c.every == 0 || step%c.every != 0) {
		return nil
	}
	if c.rows != nil {
		if err := c.rows.Check("ddp", s.g.Axes(), s.g); err != nil {
			return err
		}
		c.rows = nil
	}
	return s.sameValues()
}

// sameValues compares the parameters over the ranks that hold the same of them.
func (s *sync) sameValues() error {
	var groups []*dist.Group
	names, values := map[*dist.Group][]string{}, map[*dist.Group][]tensor.Tensor{}
	for _, p := range s.all {
		if p.IsBuffer() { // statistics of a rank's own rows, for example
			continue
		}
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
