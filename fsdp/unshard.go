package fsdp

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
)

// unshard issues the gathers of a unit. What stays and is not stale needs none.
func (s *Sharding) unshard(u *Unit, stale order.Sections) {
	if !u.keep && !s.pools.values.Has(u.flat) {
		s.pools.values.Lend(u.flat)
	}
	for i := range u.sections {
		if sec := &u.sections[i]; sec.n > 0 && (!u.keep || stale&sec.which != 0) {
			s.startGather(u, sec, stale&sec.which != 0)
		}
	}
}

// startGather issues the gather of a section, whose values may have changed since the one before.
func (s *Sharding) startGather(u *Unit, sec *section, stale bool) {
	if stale {
		s.note(u, sec)
	}
	sec.place()
	work, inHost := sec.secondary.Gather(stale)
	switch {
	case inHost:
	case s.cfg.Weights == unquantized:
		work = u.over.Gathers.AllGatherV(sec.flat, s.part(u, sec), sec.counts)
	default:
		if stale {
			sec.codes.Write(s.part(u, sec))
		}
		work = sec.codes.Start()
	}
	sec.gather = work
	work.Pending() // counts as waited for (dist/unwaited.go): one that was prefetched when the program ends is never waited for
}

// note notes the values of frozen parameters that are about to be gathered and then stay.
func (s *Sharding) note(u *Unit, sec *section) {
	if sec.which != order.Frozen || !u.keep && sec.secondary == nil {
		return
	}
	for _, pc := range u.pieces {
		if pc.in == sec {
			if pc.noted = !capture.On(s.exec.Device()); pc.noted { // a recording cannot wait for a device
				pc.sum = checksum(pc.p)
			}
		}
	}
}

// checksum returns that of this rank's part of p.
func checksum(p *tensor.Param) uint32 {
	return crc32.Checksum(tensor.ToHost(p.Local).Bytes(), crc32.MakeTable(crc32.Castagnoli))
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

// place gives back the memory of values that stay, which Changed took away.
func (sec *section) place() {
	if sec.stays != nil {
		tensor.Raw(sec.flat).Place(sec.stays)
	}
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
	sec.place() // also if values were changed in the meantime
	sec.codes.Finish()
	sec.secondary.Fill()
	return nil
}

// reshard frees the memory of a gathered unit. Units of Keep stay.
func (s *Sharding) reshard(u *Unit) {
	if !u.keep {
		s.pools.values.GiveBack(u.flat)
	}
}

// changes is what happened to values since they were gathered.
type changes struct {
	edited   bool          // Param.Changed was called
	updated  *tensor.Param // has a gradient until an optimizer's step, also of one that consumes it and does not call Param.Changed
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
	if s.host != nil {
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
