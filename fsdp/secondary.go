package fsdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/quant"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// hosts are the groups that Config.Host needs.
type hosts struct {
	gathers *dist.Group   // the ranks of this host, for its copy of the values; nil without Config.Host
	vote    tensor.Tensor // Sharding.orderVote in their lane
	reduces *quant.Hosts  // nil without Config.Grads
}

// secondary is the part that this rank keeps of its host's copy of a section's values, the secondary partition of ZeRO++. The copy is as
// old as order.Order.Fresh says.
type secondary struct {
	counts []int         // elements of each rank of the host; nil: there is no copy
	part   tensor.Tensor // this rank's
	from   tensor.Tensor // where they are in Unit.flat
	fill   bool          // the gather that goes on brings them
}

// checkHost refuses a Config.Host that nothing uses, or of other ranks.
func (c *Config) checkHost() error {
	const each = "fsdp: Config.Host is for units that are gathered for each use: leave it out with "
	switch {
	case c.Host == nil:
		return nil
	case c.Stage != 3:
		return fmt.Errorf(each+"Stage %d", c.Stage)
	case c.OncePerStep:
		return errors.New(each + "OncePerStep")
	}
	for _, r := range c.Host.Ranks() {
		if !slices.Contains(c.Shard.Ranks(), r) {
			return fmt.Errorf("fsdp: Config.Host has rank %d, which is not in Config.Shard: take the ranks of Shard on one host, as in "+
				`Shard: mesh.Group("host", "gpu"), Host: mesh.Group("gpu")`, r)
		}
	}
	return nil
}

// openHost makes what the gathers within a host need.
func (s *Sharding) openHost() error {
	h, all := s.cfg.Host, s.cfg.Shard.Ranks()
	if h == nil {
		return nil
	}
	hosts, err := dist.AllGatherObject(s.cfg.Shard, h.Ranks())
	if err != nil {
		return err
	}
	for i, host := range hosts {
		for _, r := range host {
			if other := hosts[slices.Index(all, r)]; !slices.Equal(host, other) {
				return fmt.Errorf("fsdp: ranks differ: Config.Host of rank %d has ranks %v, and that of rank %d has %v", all[i], host, r, other)
			}
		}
	}
	if s.cfg.Grads != unquantized {
		if s.hosts.reduces, err = quant.NewHosts(s.cfg.Shard, h, hosts, s.exec); err != nil {
			return err
		}
	}
	s.hosts.gathers = h.With(dist.Name(h.Name() + " host gather"))
	s.hosts.vote = s.compared(2)
	return nil
}

// layOutSecondary makes the secondary part of a section. Units that stay are gathered once, and those of Unit.Over are other ranks'.
func (s *Sharding) layOutSecondary(u *Unit, sec *section) {
	if s.hosts.gathers == nil || u.keep || u.over != s.all {
		return
	}
	lo, hi := layout.Share(sec.n, s.hosts.gathers.Rank(), s.hosts.gathers.Size())
	sec.secondary = secondary{counts: layout.Shares(make([]int, s.hosts.gathers.Size()), sec.n), from: sec.flat.Range(lo, hi),
		part: s.hosts.gathers.AllocFor(memory.Gathered, u.compute, hi-lo)}
}

// gatherInHost issues the gather of a section over this host. It reports whether the host has the values; if not, the gather over all ranks
// brings them.
func (s *Sharding) gatherInHost(sec *section, stale bool) bool {
	c := &sec.secondary
	if c.fill = stale && c.counts != nil; stale || c.counts == nil {
		return false
	}
	sec.gather = s.hosts.gathers.AllGatherV(sec.flat, c.part, c.counts)
	sec.gather.Pending()
	return true
}

// fillSecondary keeps this rank's part of what was gathered over all ranks.
func (s *Sharding) fillSecondary(sec *section) {
	if sec.secondary.fill {
		sec.secondary.fill = false
		s.copyTo(sec.secondary.part, sec.secondary.from)
	}
}
