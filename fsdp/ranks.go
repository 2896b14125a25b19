package fsdp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// ranks is who shares units, and what carries their traffic.
type ranks struct {
	shard       *dist.Group // each rank holds a part
	replicate   *dist.Group // each rank holds the same part as this one; nil: one copy
	gathers     *dist.Group // over shard
	reduces     *dist.Group
	copyReduces *dist.Group // over replicate, for gradients
	control     *dist.Group // over replicate, for everything else
}

// open makes the groups. It is collective.
func (o *ranks) open() {
	g, r := o.shard, o.replicate
	o.gathers, o.reduces = g.With(dist.Name(g.Name()+" gather")), g.With(dist.Name(g.Name()+" reduce"))
	if r != nil {
		o.copyReduces, o.control = r.With(dist.Name(r.Name()+" copies")), r.With(dist.Name(r.Name()+" control"))
	}
}

// axes returns the axes of the job along which gradients are summed.
func (o *ranks) axes() tensor.Axes {
	a := o.shard.Axes()
	if o.replicate != nil {
		a |= o.replicate.Axes()
	}
	return a
}

// size returns how many ranks there are.
func (o *ranks) size() int {
	if o.replicate == nil {
		return o.shard.Size()
	}
	return o.shard.Size() * o.replicate.Size()
}

// allReduce is an all-reduce over a group of the ranks of shard, and then over the copies.
func (o *ranks) allReduce(shard *dist.Group, x tensor.Tensor, op dist.Reduction) error {
	err := shard.AllReduce(x, op).Wait()
	if err != nil || o.control == nil {
		return err
	}
	return o.control.AllReduce(x, op).Wait()
}

// broadcast copies the first rank's value of p to all, on their devices.
func (o *ranks) broadcast(p *tensor.Param, dev tensor.Device) error {
	p.To(dev)
	if o.control != nil {
		if err := o.control.Broadcast(p.Value, 0).Wait(); err != nil {
			return err
		}
	}
	return o.gathers.Broadcast(p.Value, 0).Wait()
}

// agree compares lines over all ranks.
func (o *ranks) agree(lines []string, problem error) error {
	problem = dist.Agree(o.shard, "fsdp", lines, problem)
	if o.replicate != nil {
		problem = dist.Agree(o.replicate, "fsdp", lines, problem)
	}
	return problem
}

// first returns the world rank of the first of all ranks.
func (o *ranks) first() (int, error) {
	first, err := dist.BroadcastObject(o.shard, o.shard.GlobalRank(), 0)
	if err != nil || o.replicate == nil {
		return first, err
	}
	return dist.BroadcastObject(o.replicate, first, 0)
}

// shareRanks gives units with the same groups the same ranks. Those of the Config are all that there are.
func (s *Sharding) shareRanks() {
	s.over = []*ranks{s.all}
	for _, u := range s.units {
		k := slices.IndexFunc(s.over, func(o *ranks) bool { return *o == *u.over }) // none is open
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
			lines = append(lines, fmt.Sprintf("%s over %d ranks", u.name, u.over.size()))
		}
	}
	for _, p := range s.params {
		if s.of[p] == nil && !s.foreign(p) {
			lines = append(lines, describe(p))
		}
	}
	problem = s.all.agree(lines, problem)
	if problem != nil || len(s.over) == 1 {
		return problem
	}
	first, err := s.all.first()
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
		problem = o.agree(lines, problem)
	}
	return s.all.agree(nil, problem)
}
