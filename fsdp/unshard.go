package fsdp

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/tensor"
)

// unshard issues the gathers of a unit. What stays and is not stale needs none.
func (s *Sharding) unshard(u *Unit, stale order.Parts) {
	if !u.keep && !s.values.Has(u.flat) {
		s.values.Lend(u.flat)
	}
	for i := range u.sections {
		if sec := &u.sections[i]; sec.n > 0 && (!u.keep || stale&sec.part != 0) {
			s.startGather(u, sec, stale&sec.part != 0)
		}
	}
}

// startGather issues the gather of a section, whose values may have changed since the one before.
func (s *Sharding) startGather(u *Unit, sec *section, stale bool) {
	if stale {
		s.note(u, sec)
	}
	if s.gatherInHost(sec, stale) {
		return
	}
	if s.cfg.Weights == unquantized {
		sec.gather = u.over.gathers.AllGatherV(sec.flat, s.part(u, sec), sec.counts)
	} else {
		if stale {
			sec.codes.Write(s.part(u, sec))
		}
		sec.gather = sec.codes.Start()
	}
	sec.gather.Pending() // nobody waits for those ahead of the program's end
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
func (s *Sharding) waitUnshard(u *Unit) error {
	for i := range u.sections {
		if err := s.waitGather(&u.sections[i]); err != nil {
			s.reshard(u)
			return &tensor.Failure{Op: "fsdp: gather of " + u.name, Err: err}
		}
	}
	return nil
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
		s.values.GiveBack(u.flat)
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
		s.do(s.order.ReshardAll())
	}
	if stepped {
		s.changes.updated = nil
		s.order.Stepped()
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
			s.do(s.order.Record(u.index))
		}
		first = false
		for _, a := range s.order.Replay() {
			u := s.units[a.Unit]
			s.unshard(u, a.Stale)
			if err := s.waitGather(&u.sections[1]); err != nil {
				return fmt.Errorf("fsdp: gather of %s: %w", u.name, err)
			}
		}
		return nil
	})
}
