package fsdp

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// perform carries out what the order of units says.
func (s *Sharding) perform(todo []action) {
	for _, a := range todo {
		switch a.do {
		case unshard:
			s.unshard(a.u)
		case waitUnshard:
			s.waitUnshard(a.u)
		case reshard:
			s.reshard(a.u)
		default:
			s.agree(a.u, a.do)
		}
	}
}

// unshard issues the gathers of a unit.
func (s *Sharding) unshard(u *Unit) {
	if !u.keep && !s.values.Has(u.flat) {
		s.values.Lend(u.flat)
	}
	for i := range u.sections {
		if sec := &u.sections[i]; !u.keep || !sec.upToDate() {
			s.startGather(u, sec)
		}
	}
	u.gathered = false
}

// startGather issues the gather of a section.
func (s *Sharding) startGather(u *Unit, sec *section) {
	if s.note(u, sec); sec.n == 0 || s.gatherInHost(sec) {
		return
	}
	if s.cfg.Weights == unquantized {
		sec.gather = u.over.gathers.AllGatherV(sec.flat, s.part(u, sec), sec.counts)
	} else {
		if !sec.codes.Written() {
			sec.codes.Write(s.part(u, sec))
		}
		sec.gather = sec.codes.Start()
	}
	sec.gather.Pending() // nobody waits for those ahead of the program's end
	sec.fresh = true
}

// part returns this rank's part of a section, in the type in which the unit is used.
func (s *Sharding) part(u *Unit, sec *section) tensor.Tensor {
	switch {
	case s.cfg.Offload != nil:
		s.upload(sec)
	case u.compute == s.cfg.DType:
		return sec.local
	default:
		s.exec.Cast(sec.flatShard, sec.local)
	}
	return sec.flatShard
}

// waitUnshard waits for the gathers of a unit.
func (s *Sharding) waitUnshard(u *Unit) {
	if u.gathered {
		return
	}
	for i := range u.sections {
		if err := s.waitGather(&u.sections[i]); err != nil {
			u.sections[i].change()
			s.reshard(u)
			panic(&tensor.Failure{Op: "fsdp: gather of " + u.name, Err: err})
		}
	}
	u.gathered = true
}

// waitGather waits for the gather of a section.
func (s *Sharding) waitGather(sec *section) error {
	if err := sec.gather.Wait(); err != nil {
		return err
	}
	sec.codes.Finish()
	s.fillSecondary(sec)
	return nil
}

// reshard frees the memory of a gathered unit. Units of Keep stay.
func (s *Sharding) reshard(u *Unit) {
	if !u.keep {
		u.gathered = false
		s.values.GiveBack(u.flat)
	}
}

var phaseNames = [...]string{agreeForward: "in forward", agreeBackward: "in Backward", agreeNewForward: "in a new forward pass"}

// agree compares over all ranks which unit is gathered now, and where. The vote is in the lanes of the gathers. So if one
// rank votes while another one gathers, both get an error at once.
func (s *Sharding) agree(u *Unit, at step) {
	phases := int32(len(phaseNames))
	code := int32(u.index)*phases + int32(at)
	v := tensor.Data[int32](s.orderVote)
	v[0], v[1] = code, -code
	var near dist.Work
	if s.hosts.gathers != nil {
		copy(tensor.Data[int32](s.hosts.vote), v)
		near = s.hosts.gathers.AllReduce(s.hosts.vote, dist.Max)
	}
	err := s.all.allReduce(s.all.gathers, s.orderVote, dist.Max)
	if err == nil {
		err = near.Wait()
	}
	if err != nil {
		panic(&tensor.Failure{Op: fmt.Sprintf("fsdp: agreeing on the order of units, %s %s", u.name, phaseNames[at]), Err: err})
	}
	if most, least := v[0], -v[1]; most != least {
		s.fail(fmt.Errorf("ranks use units in different orders: %s %s on one rank, %s %s on another", s.units[least/phases].name,
			phaseNames[least%phases], s.units[most/phases].name, phaseNames[most%phases]))
	}
}

// fail makes every rank fail with err, and panics.
func (s *Sharding) fail(err error) { s.must(s.abort(err)) }

// abort makes every rank fail with err, and returns the failure.
func (s *Sharding) abort(err error) error {
	for _, o := range s.over {
		o.gathers.Abort(fmt.Errorf("fsdp: %w", err))
	}
	if s.hosts.gathers != nil {
		s.hosts.gathers.Abort(fmt.Errorf("fsdp: %w", err))
	}
	return s.all.gathers.Err()
}

func (s *Sharding) must(err error) {
	if err != nil {
		panic(&tensor.Failure{Op: "fsdp", Err: err})
	}
}

// changes is what happened to values since they were gathered.
type changes struct {
	updated  *tensor.Param // has a gradient until the optimizer's step
	edited   bool          // values were changed otherwise
	recorded *tensor.Recording
}

// noticeChanges frees what was gathered when values have changed, before a use of u. All trained values have in an optimizer's step, also
// where a rank has no part of them.
func (s *Sharding) noticeChanges(u *Unit) {
	if r := s.exec.Recording(); r != s.changes.recorded {
		if s.changes.recorded = r; r != nil {
			s.must(s.record(r, u))
		}
	}
	stepped := s.changes.updated != nil && !s.changes.updated.HasGrad()
	if s.changes.edited || stepped {
		s.changes.edited = false
		s.perform(s.order.reshardAll())
	}
	if stepped {
		s.changes.updated = nil
		for _, u := range s.reductions.units {
			u.trained().change()
		}
	}
}

// record begins a captured step with a use of u: each replay gathers what the optimizer changes, even if it is gathered now, and frozen
// values of units that stay only when they were changed.
func (s *Sharding) record(r *tensor.Recording, u *Unit) error {
	if s.hosts.gathers != nil {
		return errors.New("with Config.Host, steps cannot be captured (capture.New): leave Host out")
	}
	first := true
	return r.Between(func() error {
		if first { // forget what was gathered before
			s.perform(s.order.restart(u))
			for _, u := range s.units {
				u.trained().change()
			}
		}
		first = false
		for _, u := range s.units {
			if sec := &u.sections[1]; u.keep && !sec.upToDate() {
				s.startGather(u, sec)
				if err := s.waitGather(sec); err != nil {
					return fmt.Errorf("fsdp: gather of %s: %w", u.name, err)
				}
			}
		}
		return nil
	})
}
