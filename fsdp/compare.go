package fsdp

import (
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
)

// compareStep compares, at the end of a step, what ranks must agree on.
func (s *Sharding) compareStep() error {
	if err := s.checks.Replays("fsdp", s.exec.Recording()); err != nil || !s.checks.Done(s, capture.On(s.exec.Device()), s.params) {
		return err
	}
	groups := []*dist.Group{s.cfg.Shard}
	if s.all.Control != nil {
		groups = append(groups, s.all.Control)
	}
	if err := s.checks.Rows("fsdp", s.all.Axes(), groups...); err != nil || !s.checks.Values() {
		return err
	}
	if err := s.sameValues(groups); err != nil {
		return err
	}
	return s.sameFrozen()
}

// sameFrozen compares the values of frozen parameters, of this rank's parts and of what stays gathered, with those of the step that was
// compared before, and in all compared steps with what was gathered of them.
func (s *Sharding) sameFrozen() error {
	for _, u := range s.units {
		for _, pc := range u.pieces {
			err := s.checks.Frozen(pc.p, pc.p.Local)
			fresh := s.order.Fresh(u.index, pc.in.which)
			if err == nil && u.keep && fresh {
				err = s.checks.Frozen(pc.p, pc.p.Value)
			}
			if err == nil && fresh && pc.noted && pc.sum != checksum(pc.p) {
				err = fmt.Errorf("%s is frozen, and its values were changed since they were gathered, so that ranks compute with the old ones: "+
					"behind a change that is meant call Changed of the parameter", pc.p.Name())
			}
			if err != nil {
				return s.abort(fmt.Errorf("rank %d: %w", s.cfg.Shard.GlobalRank(), err))
			}
		}
	}
	return nil
}

// sameValues compares buffers, which every rank has whole, and the parts of parameters that copies of this rank have, too. A buffer that
// differs would be saved as one rank has it. All ranks return the first one's problem.
func (s *Sharding) sameValues(groups []*dist.Group) error {
	var problem error
	compared := false
	compare := func(g *dist.Group, has func(p *tensor.Param) bool) {
		var names []string
		var values []tensor.Tensor
		for _, p := range s.params {
			if !has(p) {
				continue
			}
			x := p.Value
			if s.of[p] != nil {
				x = p.Local
			}
			names, values = append(names, p.Name()), append(values, x)
		}
		problem, compared = cmp.Or(problem, dist.SameValues(g, "fsdp", names, values)), compared || names != nil
	}
	for _, g := range groups {
		compare(g, func(p *tensor.Param) bool { return p.IsBuffer() && !s.foreign(p) })
	}
	for _, o := range s.over {
		if o.Control != nil {
			compare(o.Control, func(p *tensor.Param) bool { return s.of[p] != nil && s.of[p].u.over == o })
		}
	}
	if !compared {
		return nil
	}
	return s.all.Agree(nil, problem)
}
