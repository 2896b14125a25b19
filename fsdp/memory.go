package fsdp

import (
	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/fsdp/internal/zeropp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// layOut gives units their memory, and parameters their values.
func (s *Sharding) layOut() error {
	for _, p := range s.params {
		if s.of[p] != nil || s.foreign(p) {
			continue
		}
		if p.Value.IsZero() {
			p.Make(s.exec.Device(), s.cfg.DType, s.cfg.Seed)
		} else if err := s.all.Broadcast(p, s.exec.Device()); err != nil {
			return err
		}
		if err := p.Own(buffers{s}, 0); err != nil {
			return err
		}
	}
	s.pools.values.Group, s.pools.values.Kind = s.all.Gathers, memory.Gathered
	s.pools.codes.Group, s.pools.codes.Kind = s.all.Gathers, memory.Communication
	s.order = s.newOrder()
	for _, u := range s.units {
		s.layOutValues(u)
		if u.trained().n > 0 {
			s.layOutGrads(u)
		}
		for _, pc := range u.pieces {
			if err := s.attachPiece(pc); err != nil {
				return err
			}
		}
	}
	s.orderVote = tensor.NewStaging(memory.Communication, s.exec.Device(), tensor.Int32, 2)
	n := len(s.units) + len(s.of) + 3 // more than in a vote: neither is taken for the other
	s.usage = tensor.NewStaging(memory.Communication, s.exec.Device(), tensor.Int32, n)
	return nil
}

// newOrder describes the units to their Order.
func (s *Sharding) newOrder() *order.Order {
	units := make([]order.Unit, len(s.units))
	for i, u := range s.units {
		x := order.Unit{Keep: u.keep, Hops: s.cfg.Grads != unquantized && u.over == s.all} // the ranks of Unit.Over are others
		for _, sec := range u.sections {
			if sec.n > 0 {
				x.Has |= sec.which
			}
		}
		if s.cfg.Stage > 1 {
			x.Pool = 1
			if u.gradPool != &s.pools.grads {
				x.Pool = 2 + i
			}
		}
		units[i] = x
	}
	return order.New(units)
}

// layOutValues makes flat, and of each section flat, flatShard and local.
func (s *Sharding) layOutValues(u *Unit) {
	c := &s.cfg
	inPlace := u.keep && u.compute == c.DType && c.Offload == nil && c.Weights == unquantized
	if u.keep {
		u.flat = u.over.Gathers.AllocFor(memory.Uncounted, u.compute, u.n)
		s.countKept(u, inPlace)
	} else {
		u.flat = s.pools.values.New(u.compute, u.n)
	}
	for i := range u.sections {
		sec := &u.sections[i]
		if sec.n == 0 {
			continue
		}
		sec.flat = u.flat.Range(sec.off, sec.off+sec.n)
		here := u.flat.Range(sec.lo, sec.hi)
		if u.keep && (!inPlace || len(sec.counts) > 1) { // Local stays, and the whole is there while it is as new
			sec.stays = sec.flat.Ptr()
			sec.flat = tensor.FromPtr(u.over.Gathers.Device(), nil, u.compute, sec.n)
			tensor.Raw(sec.flat).Keep(tensor.Ptr(u))
		}
		sec.flatShard = sec.flat.Range(sec.lo-sec.off, sec.hi-sec.off)
		if s.host != nil && !u.keep && u.over == s.all { // units that stay are gathered once, and those of Unit.Over are other ranks'
			sec.secondary = s.host.NewCopy(sec.flat)
		}
		switch {
		case inPlace:
			sec.local = here
		case c.Offload != nil:
			sec.local = tensor.NewFor(memory.Parameters, c.Offload, c.DType, sec.hi-sec.lo)
			if u.compute != c.DType {
				sec.narrow = tensor.NewFor(memory.Communication, c.Offload, u.compute, sec.hi-sec.lo)
			}
		default:
			sec.local = u.over.Gathers.AllocFor(memory.Parameters, c.DType, sec.hi-sec.lo)
		}
		if c.Weights != unquantized {
			sec.codes = zeropp.NewGather(u.over.Gathers, s.exec, &s.pools.codes, sec.flat, sec.counts)
		}
	}
}

// countKept counts the values of a unit that stays. They are parameters. In stage 3, those beyond this rank's part count as gathered.
func (s *Sharding) countKept(u *Unit, inPlace bool) {
	gathered, size := 0, u.compute.Size()
	if s.cfg.Stage == 3 {
		gathered = u.n
		if inPlace {
			gathered -= u.sections[0].hi - u.sections[0].lo + u.sections[1].hi - u.sections[1].lo
		}
	}
	tensor.Raw(u.flat).Count(memory.Gathered, gathered*size)
	tensor.Raw(u.flat).Count(memory.Parameters, (u.n-gathered)*size)
}

// layOutGrads makes grads, gradScratch, gradShard and offloaded.
func (s *Sharding) layOutGrads(u *Unit) {
	c, sec := &s.cfg, u.trained()
	n := sec.hi - sec.lo
	if c.Stage == 1 {
		u.grads = u.over.Reduces.AllocFor(memory.Gradients, u.reduce, sec.n)
	} else {
		u.gradPool.Group, u.gradPool.Kind = u.over.Reduces, memory.Communication
		u.grads = u.gradPool.New(u.reduce, sec.n)
	}
	u.gradScratch = u.grads.Range(sec.lo, sec.hi)
	u.gradShard = u.gradScratch
	if c.Stage > 1 {
		u.gradShard = u.over.Reduces.AllocFor(memory.Gradients, u.reduce, n)
	}
	if s.cfg.Grads != unquantized && u.over == s.all { // the ranks of Unit.Over are others
		u.hops = s.host.Hops.NewReduction(u.grads, u.gradShard, sec.counts)
	}
	u.offloaded = u.gradShard
	if c.Offload != nil {
		u.offloaded = tensor.NewFor(memory.Gradients, c.Offload, u.reduce, n)
	}
}
