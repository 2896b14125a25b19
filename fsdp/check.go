package fsdp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// checks compares, at the end of a step, what ranks must agree on: in the first one, and then in every Config.CheckEvery.
type checks struct {
	step int
	rows *dist.RowCheck // nil: after the first step
}

// restart forgets what a Backward that failed has noted.
func (c *checks) restart() {
	if c.rows != nil {
		c.rows.Forget()
	}
}

func (c *checks) note(p *tensor.Param) {
	if c.rows != nil {
		c.rows.Note(p)
	}
}

// check runs the comparisons of a step that is complete.
func (s *Sharding) check() error {
	step, every := s.step, s.cfg.CheckEvery
	s.step++
	if step > 0 && (every == 0 || step%every != 0) {
		return nil
	}
	if s.rows != nil {
		groups := []*dist.Group{s.cfg.Shard}
		if s.all.control != nil {
			groups = append(groups, s.all.control)
		}
		if err := s.rows.Check("fsdp", s.all.axes(), groups...); err != nil {
			return err
		}
		s.rows = nil
	}
	return s.sameCopies()
}

// sameCopies compares the parts that this rank's copies have, too. All ranks return the first one's problem.
func (s *Sharding) sameCopies() error {
	var problem error
	copies := false
	for _, o := range s.over {
		if o.control == nil {
			continue
		}
		copies = true
		var names []string
		var values []tensor.Tensor
		for _, u := range s.units {
			for _, pc := range u.pieces {
				if u.over == o {
					names, values = append(names, pc.p.Name()), append(values, pc.p.Local)
				}
			}
		}
		if err := dist.SameValues(o.control, "fsdp", names, values); err != nil && problem == nil {
			problem = err
		}
	}
	if !copies {
		return nil
	}
	return s.all.agree(nil, problem)
}
