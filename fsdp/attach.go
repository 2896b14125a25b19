package fsdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Attach cuts the parameters of model, the same on all ranks of Shard and Replicate, which must all call it, and hooks
// gathers and reductions into forward and backward. It returns the parameters and buffers, for the optimizer.
//
// Parameters without values get theirs, those of nn.Init, part by part: no rank holds the whole model. Of parameters that
// have values, rank 0's are taken. Each parameter must be in one unit, or ignored. Buffers belong in no unit; ranks hold
// them whole. Parameters may be frozen later, on all ranks alike.
func (s *Sharding) Attach(model any) (nn.Params, error) {
	if err := s.cfg.check(); err != nil {
		return nil, err
	}
	if s.params != nil {
		return nil, errors.New("fsdp: Attach was called before")
	}
	s.params = nn.ParamsOf(model)
	g := s.cfg.Shard
	problem := s.assign()
	if problem == nil {
		for _, u := range s.units {
			u.plan(g.Rank(), g.Size())
			u.setName()
		}
	}
	if err := s.verify(problem); err != nil {
		return nil, err
	}
	s.exec = tensor.NewExec(g.Device())
	if s.cfg.Offload != nil {
		s.host = tensor.NewExec(s.cfg.Offload)
	}
	s.gathers, s.reduces = g.With(dist.Name(g.Name()+" gather")), g.With(dist.Name(g.Name()+" reduce"))
	if r := s.cfg.Replicate; r != nil {
		s.copies, s.control = r.With(dist.Name(r.Name()+" copies")), r.With(dist.Name(r.Name()+" control"))
	}
	if err := s.layOut(); err != nil {
		return nil, err
	}
	return s.params, nil
}

// assign finds each parameter's unit.
func (s *Sharding) assign() error {
	var errs []error
	refuse := func(format string, a ...any) { errs = append(errs, fmt.Errorf("fsdp: "+format, a...)) }
	for _, u := range s.units {
		u.pieces = slices.DeleteFunc(u.pieces, func(pc *piece) bool { return pc.p.IsBuffer() || pc.p.Len() == 0 })
		if len(u.pieces) == 0 {
			refuse("unit %d has no parameters", u.index)
		}
		for _, pc := range u.pieces {
			switch other := s.of[pc.p]; {
			case !slices.Contains(s.params, pc.p):
				refuse("%v in unit %d is not in the model", pc.p, u.index)
			case other != nil:
				refuse("%s is in units %d and %d; what is tied belongs in one", pc.p.Name(), other.u.index, u.index)
			case s.ignored[pc.p]:
				refuse("%s is in unit %d, and ignored", pc.p.Name(), u.index)
			case pc.p.Owner() != nil:
				refuse("%s is attached already: its gradient belongs to %v", pc.p.Name(), pc.p.Owner())
			}
			s.of[pc.p] = pc
		}
	}
	for _, p := range s.params {
		if s.of[p] == nil && !s.ignored[p] && !p.IsBuffer() && p.Len() > 0 {
			refuse("%s is in no unit", p.Name())
		}
	}
	return errors.Join(errs...)
}

// verify compares configuration and units over ranks. All ranks return the first one's problem.
func (s *Sharding) verify(problem error) error {
	c := s.cfg
	lines := []string{fmt.Sprintf("Stage=%d DType=%v Seed=%d Compute=%v Reduce=%v HoldGrads=%v Offload=%v",
		c.Stage, c.DType, c.Seed, c.Compute, c.Reduce, c.HoldGrads, c.Offload != nil)}
	for _, u := range s.units {
		lines = append(lines, u.shape())
	}
	for _, p := range s.params {
		lines = append(lines, fmt.Sprintf("%v with values: %v", p, !p.Value.IsZero()))
	}
	problem = dist.Agree(c.Shard, "fsdp", lines, problem)
	if c.Replicate != nil {
		problem = dist.Agree(c.Replicate, "fsdp", lines, problem)
	}
	return problem
}

// layOut gives units their memory, and parameters their values.
func (s *Sharding) layOut() error {
	for _, p := range s.params {
		switch {
		case s.of[p] != nil:
		case p.Value.IsZero():
			p.Make(s.exec.Device(), s.cfg.DType, s.cfg.Seed)
		case !s.ignored[p]:
			if err := s.broadcast(p); err != nil {
				return err
			}
		}
	}
	s.values.g, s.values.kind = s.gathers, tensor.Gathered
	for _, u := range s.units {
		s.layOutValues(u)
		if u.trained > 0 {
			s.layOutGrads(u)
		}
		for _, pc := range u.pieces {
			if err := s.adopt(pc); err != nil {
				return err
			}
		}
	}
	s.initSums()
	return nil
}

// layOutValues makes local, flat and mine.
func (s *Sharding) layOutValues(u *unit) {
	c := &s.cfg
	inPlace := u.keep && c.Compute == c.DType && c.Offload == nil
	if u.keep {
		u.flat = s.gathers.AllocFor(tensor.Uncounted, c.Compute, u.n)
		s.countKept(u, inPlace)
	} else {
		u.flat = tensor.FromPtr(s.exec.Device(), nil, c.Compute, u.n)
		s.values.want(u.flat)
	}
	u.mine = u.flat.Range(u.lo, u.hi)
	switch {
	case inPlace:
		u.local = u.mine
		return
	case c.Offload != nil:
		s.offloadValues(u)
		return
	}
	u.local = s.gathers.AllocFor(tensor.Parameters, c.DType, max(u.hi-u.lo, 1)).Range(0, u.hi-u.lo)
}

// countKept says what the values of a unit that stay are: whole parameters; but in stage 3, beyond this rank's part, what was
// gathered.
func (s *Sharding) countKept(u *unit, inPlace bool) {
	gathered, size := 0, s.cfg.Compute.Size()
	if s.cfg.Stage == 3 {
		gathered = u.n
		if inPlace {
			gathered -= u.hi - u.lo
		}
	}
	tensor.Count(u.flat, tensor.Gathered, gathered*size)
	tensor.Count(u.flat, tensor.Parameters, (u.n-gathered)*size)
}

// layOutGrads makes grads, gmine and shard.
func (s *Sharding) layOutGrads(u *unit) {
	c := &s.cfg
	rank := c.Shard.Rank()
	n := u.gcounts[rank]
	first := 0
	for _, k := range u.gcounts[:rank] {
		first += k
	}
	if c.Stage == 1 {
		u.grads = s.reduces.AllocFor(tensor.Gradients, c.Reduce, u.trained)
	} else {
		u.grads = tensor.FromPtr(s.exec.Device(), nil, c.Reduce, u.trained)
		u.wholes.g, u.wholes.kind = s.reduces, tensor.Communication
		u.wholes.want(u.grads)
	}
	u.gmine = u.grads.Range(first, first+n)
	u.shard = u.gmine
	if c.Stage > 1 {
		u.shard = s.reduces.AllocFor(tensor.Gradients, c.Reduce, max(n, 1)).Range(0, n)
	}
	u.host = u.shard
	if c.Offload != nil {
		u.host = tensor.NewFor(tensor.Gradients, c.Offload, c.Reduce, max(n, 1)).Range(0, n)
	}
}

// adopt makes the parameter's part, with its value, and its views.
func (s *Sharding) adopt(pc *piece) error {
	p, u := pc.p, pc.u
	at := pc.off + pc.lo - u.lo
	if pc.lo == pc.hi {
		at = 0
	}
	local := u.local.Range(at, at+pc.hi-pc.lo)
	if p.Value.IsZero() {
		p.Fill(local, s.cfg.Seed, pc.lo)
	} else {
		if err := s.broadcast(p); err != nil {
			return err
		}
		s.setLocal(local, p.Value.View(p.Len()).Range(pc.lo, pc.hi))
	}
	p.Value = u.flat.Range(pc.off, pc.off+p.Len()).View(p.Dims()...)
	p.Local = local
	p.NarrowCounts(s.copies == nil || s.copies.Rank() == 0)
	p.Shard.Flat = [2]int{pc.lo, pc.hi}
	if pc.hi == 0 { // {0,0} would be all of it
		p.Shard.Flat = [2]int{p.Len(), p.Len()}
	}
	p.Shard.Unit, p.Shard.Place = u.name, slices.Index(u.pieces, pc)
	if !p.Frozen() {
		pc.grad = u.grads.Range(pc.off, pc.off+p.Len()).View(p.Dims()...)
		pc.part = u.host.Range(at, at+pc.hi-pc.lo)
		p.Grad = pc.part
	}
	return p.Own(s)
}

// broadcast copies rank 0's value to all, on their devices.
func (s *Sharding) broadcast(p *tensor.Param) error {
	p.To(s.exec.Device())
	x := p.Value
	if s.control != nil {
		if err := s.control.Broadcast(x, 0).Wait(); err != nil {
			return err
		}
	}
	return s.gathers.Broadcast(x, 0).Wait()
}

func (s *Sharding) cast(dst, src tensor.Tensor) {
	if src.Len() > 0 {
		s.exec.Args(tensor.OpCast, src.DType()).Out(dst).In(src)
		s.exec.Launch()
	}
}
