package fsdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// entry is a place in the order of gathers.
type entry struct {
	u     *Unit
	phase tensor.Phase
}

// order is the order in which all ranks gather units in a forward pass and the Backward after it, and where this rank is.
type order struct {
	list      []entry // of forward, then of Backward
	forward   int     // entries of forward
	pos       int     // the first entry that was not used yet
	issued    int     // the first entry whose gather was not issued
	learned   bool    // a Backward was completed: list is known
	current   *Unit   // gathered, and not kept; nil: none
	values    pool    // memory of gathered units
	codes     pool    // and of their codes
	orderVote tensor.Tensor
	nearVote  tensor.Tensor // the same, in the lane of Config.Host
	updated   *tensor.Param // has a gradient until the optimizer's step
	stale     bool          // values were changed otherwise
	recorded  *tensor.Recording
}

// BeforeUse gathers the unit of p, unless it is gathered. In Backward it also gives memory to the gradients of the unit.
func (s *Sharding) BeforeUse(p *tensor.Param, phase tensor.Phase) {
	pc := s.of[p]
	u := pc.u
	if phase == tensor.Forward {
		s.noticeChanges(u)
	}
	if !u.gathered || u != s.current && !u.upToDate() {
		s.use(u, phase)
	}
	if phase == tensor.Forward {
		return
	}
	if !u.gradsLent && !u.complete && u.trained().n > 0 { // frozen ones may be used after the last gradient
		s.lendGradients(u)
	}
}

// noticeChanges frees what was gathered when values have changed, before a use of u. All trained values have in an optimizer's step, also
// where a rank has no part of them.
func (s *Sharding) noticeChanges(u *Unit) {
	if r := s.exec.Recording(); r != s.recorded {
		if s.recorded = r; r != nil {
			s.must(s.record(r, u))
		}
	}
	stepped := s.updated != nil && !s.updated.HasGrad()
	if s.stale || stepped {
		s.stale = false
		s.releaseAll()
	}
	if stepped {
		s.updated = nil
		for _, u := range s.reduceOrder {
			u.trained().change()
		}
	}
}

// record begins a captured step with a use of u: each replay gathers what the optimizer changes, even if it is gathered now, and frozen
// values of units that stay only when they were changed.
func (s *Sharding) record(r *tensor.Recording, u *Unit) error {
	if s.near != nil {
		return errors.New("with Config.Host, steps cannot be captured (tensor.Capture): leave Host out")
	}
	first := true
	return r.Between(func() error {
		if first {
			s.beginRecording(u)
		}
		first = false
		for _, u := range s.units {
			if sec := &u.sections[1]; u.keep && !sec.upToDate() {
				s.startGather(u, sec)
				if err := s.arrive(sec); err != nil {
					return fmt.Errorf("fsdp: gather of %s: %w", u.name, err)
				}
			}
		}
		return nil
	})
}

// beginRecording forgets what was gathered before.
func (s *Sharding) beginRecording(u *Unit) {
	if s.pos > 0 {
		s.beginForward(u)
	}
	s.releaseCurrent()
	for _, u := range s.units {
		u.trained().change()
	}
}

// Changed makes the next forward pass gather the unit of p.
func (s *Sharding) Changed(p *tensor.Param) {
	s.of[p].in.change()
	s.stale = true
}

// releaseAll frees the units that do not stay. It waits for the gathers that were started.
func (s *Sharding) releaseAll() {
	s.skipTo(s.issued)
	s.releaseCurrent()
}

// releaseCurrent frees the unit in use.
func (s *Sharding) releaseCurrent() {
	if s.current != nil {
		s.release(s.current)
		s.current = nil
	}
}

// use gathers u: it goes on to the entry of u in the order, waits for the gather, and starts the gather of the next entry.
func (s *Sharding) use(u *Unit, phase tensor.Phase) {
	if !u.keep && u != s.current { // the unit in use may be gathered anew, where the order says so
		s.releaseCurrent()
	}
	k := s.find(u, phase)
	if k < 0 {
		k = s.useOutOfOrder(u, phase)
	}
	s.skipTo(k)
	s.issueGathers(k)
	s.waitGather(u)
	if !u.keep {
		s.current = u
	}
	s.pos = k + 1
	s.prefetch(phase)
}

// find returns the next entry of u in a phase, or −1.
func (s *Sharding) find(u *Unit, phase tensor.Phase) int {
	for k := s.pos; k < s.end(phase); k++ {
		if s.list[k] == (entry{u, phase}) {
			return k
		}
	}
	return -1
}

func (s *Sharding) end(phase tensor.Phase) int {
	if phase == tensor.Forward {
		return s.forward
	}
	return len(s.list)
}

// useOutOfOrder is for a use that is not in the rest of the order. It returns the entry of the use. All ranks agree before it adds an
// entry to the order, or goes back to the beginning of the order.
func (s *Sharding) useOutOfOrder(u *Unit, phase tensor.Phase) int {
	known := slices.Contains(s.list, entry{u, phase})
	switch {
	case phase == tensor.Forward && known: // another forward pass: evaluation
		s.beginForward(u)
		return s.find(u, phase)
	case known && s.learned:
		s.fail(fmt.Errorf("%s is used at another place in Backward than in the first step", u.name))
	}
	s.agree(u, int32(phase))
	s.list = slices.Insert(s.list, s.pos, entry{u, phase})
	if phase == tensor.Forward {
		s.forward++
	}
	s.issued++
	s.startGathers(u)
	return s.pos
}

// beginForward ends a forward pass that had no Backward: the next one begins with u, on all ranks.
func (s *Sharding) beginForward(u *Unit) {
	s.skipTo(max(s.forward, s.issued))
	s.agree(u, newForward)
	s.pos, s.issued = 0, 0
}

const (
	newForward = 2 // besides tensor.Forward and tensor.Backward
	phases     = 3
)

var phaseNames = [phases]string{"in forward", "in Backward", "in a new forward pass"}

// agree compares over all ranks which unit is gathered now, and where. The vote is in the lanes of the gathers. So if one
// rank votes while another one gathers, both get an error at once.
func (s *Sharding) agree(u *Unit, stage int32) {
	code := int32(u.index)*phases + stage
	v := tensor.Data[int32](s.orderVote)
	v[0], v[1] = code, -code
	var near dist.Work
	if s.near != nil {
		copy(tensor.Data[int32](s.nearVote), v)
		near = s.near.AllReduce(s.nearVote, dist.Max)
	}
	err := s.exchange(s.orderVote, dist.Max)
	if err == nil {
		err = near.Wait()
	}
	if err != nil {
		panic(&tensor.Failure{Op: fmt.Sprintf("fsdp: agreeing on the order of units, %s %s", u.name, phaseNames[stage]), Err: err})
	}
	if most, least := v[0], -v[1]; most != least {
		s.fail(fmt.Errorf("ranks use units in different orders: %s %s on one rank, %s %s on another", s.units[least/phases].name,
			phaseNames[least%phases], s.units[most/phases].name, phaseNames[most%phases]))
	}
}

// exchange is an all-reduce over all ranks.
func (s *Sharding) exchange(x tensor.Tensor, op dist.Op) error {
	return s.all.allReduce(s.all.gathers, x, op)
}

// fail makes every rank fail with err, and panics.
func (s *Sharding) fail(err error) { s.must(s.abort(err)) }

// abort makes every rank fail with err, and returns the failure.
func (s *Sharding) abort(err error) error {
	for _, o := range s.over {
		o.gathers.Abort(fmt.Errorf("fsdp: %w", err))
	}
	if s.near != nil {
		s.near.Abort(fmt.Errorf("fsdp: %w", err))
	}
	return s.all.gathers.Err()
}

func (s *Sharding) must(err error) {
	if err != nil {
		panic(&tensor.Failure{Op: "fsdp", Err: err})
	}
}

// skipTo goes on to entry k. This rank did not use the units in between. Other ranks may use them, so this rank takes part in their
// gathers.
func (s *Sharding) skipTo(k int) {
	for ; s.pos < k; s.pos++ {
		s.issueGathers(s.pos)
		u := s.list[s.pos].u
		if s.waitGather(u); u != s.current {
			s.release(u)
		}
	}
}

// issueGathers starts the gathers of entry k, if they were not started before.
func (s *Sharding) issueGathers(k int) {
	if k < s.issued {
		return
	}
	s.issued = k + 1
	if u := s.list[k].u; !u.upToDate() {
		s.startGathers(u)
	}
}

// prefetch starts the next gather of a phase.
func (s *Sharding) prefetch(phase tensor.Phase) {
	for k := s.pos; k < s.end(phase); k++ {
		if u := s.list[k].u; !u.upToDate() {
			s.issueGathers(k)
			return
		}
	}
}

// startGathers issues the gathers of a unit.
func (s *Sharding) startGathers(u *Unit) {
	if !u.keep && u.buf.IsZero() {
		u.buf = s.values.lend(u.flat)
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
	if s.note(u, sec); sec.n == 0 || s.startNear(sec) {
		return
	}
	if s.cfg.Weights == unquantized {
		sec.gather = u.over.gathers.AllGatherV(sec.flat, s.part(u, sec), sec.counts)
	} else {
		sec.gather = s.gatherCodes(u, sec)
	}
	sec.gather.Pending() // nobody waits for those ahead of the program's end
	sec.fresh = true
}

// part returns this rank's part of a section, in the type in which the unit is used.
func (s *Sharding) part(u *Unit, sec *section) tensor.Tensor {
	switch {
	case s.host != nil:
		s.upload(sec)
	case u.compute == s.cfg.DType:
		return sec.local
	default:
		s.cast(sec.flatShard, sec.local)
	}
	return sec.flatShard
}

// waitGather waits for the gathers of a unit.
func (s *Sharding) waitGather(u *Unit) {
	if u.gathered {
		return
	}
	for i := range u.sections {
		if err := s.arrive(&u.sections[i]); err != nil {
			u.sections[i].change()
			s.release(u)
			panic(&tensor.Failure{Op: "fsdp: gather of " + u.name, Err: err})
		}
	}
	u.gathered = true
}

// arrive waits for the gather of a section.
func (s *Sharding) arrive(sec *section) error {
	if err := sec.gather.Wait(); err != nil {
		return err
	}
	s.expand(sec)
	s.fillSecond(sec)
	return nil
}

// release frees the memory of a gathered unit. Units of Keep stay.
func (s *Sharding) release(u *Unit) {
	if u.keep || u.buf.IsZero() {
		return
	}
	u.gathered = false
	s.values.giveBack(u.buf, u.flat)
	u.buf = tensor.Tensor{}
}

// endGathers takes part in the gathers of Backward that this rank does not need, and goes back to the beginning of the order.
func (s *Sharding) endGathers() {
	s.skipTo(len(s.list))
	s.releaseCurrent()
	s.pos, s.issued, s.learned = 0, 0, true
}
