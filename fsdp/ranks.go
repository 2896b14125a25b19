package fsdp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/fsdp/internal/groups"
)

// shareRanks gives units with the same groups the same ranks. Those of the Config are all that there are.
func (s *Sharding) shareRanks() {
	s.over = []*groups.Ranks{s.all}
	for _, u := range s.units {
		k := slices.IndexFunc(s.over, func(o *groups.Ranks) bool { return *o == *u.over }) // none is open
		if k < 0 {
			k = len(s.over)
			s.over = append(s.over, u.over)
		}
		u.over = s.over[k]
	}
}

// verify compares configuration, the layers' settings and units over ranks. All ranks return the first one's problem.
func (s *Sharding) verify(settings []string, problem error) error {
	c := s.cfg
	lines := append([]string{
		fmt.Sprintf("Stage=%d DType=%v Seed=%d Compute=%v Reduce=%v", c.Stage, c.DType, c.Seed, c.Compute, c.Reduce),
		fmt.Sprintf("OncePerStep=%v Host=%v Offload=%v CheckEvery=%d", c.OncePerStep, c.Host != nil, c.Offload != nil, c.CheckEvery),
		fmt.Sprintf("Weights=%v Grads=%v", c.Weights, c.Grads),
	}, settings...)
	for _, u := range s.units {
		if u.over == s.all {
			lines = append(lines, u.shape())
		} else {
			lines = append(lines, fmt.Sprintf("%s over %d ranks", u.name, u.over.Size()))
		}
	}
	for _, p := range s.params {
		if s.of[p] == nil && !s.foreign(p) {
			lines = append(lines, describe(p))
		}
	}
	problem = s.all.Agree(lines, problem)
	if problem != nil || len(s.over) == 1 {
		return problem
	}
	first, err := s.all.First()
	if err != nil {
		return err
	}
	for _, o := range s.over[1:] {
		lines := []string{fmt.Sprintf("Config.Shard and Config.Replicate that begin with rank %d", first)}
		for _, u := range s.units {
			if u.over == o {
				lines = append(lines, u.shape())
			}
		}
		problem = o.Agree(lines, problem)
	}
	return s.all.Agree(nil, problem)
}
