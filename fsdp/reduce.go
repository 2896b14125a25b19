package fsdp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// inFlight is the number of units whose whole gradients are in memory at a time: Backward writes one, and one is being reduced. Kept
// units do not count. If Backward needs more units at once, there are more.
const inFlight = 2

// reductions are the units whose gradients are reduced, in the order of all ranks, and how many of them have taken each step.
type reductions struct {
	units  []*Unit // from the last one used in forward to the first one, in which order their gradients are completed
	issued int
	hopped int            // with Config.Grads: issued between hosts
	waited int            // done
	sum    dist.Reduction // in the step of the tape
}

// begin begins with the first unit.
func (r *reductions) begin(o *order) {
	r.issued, r.hopped, r.waited, r.sum, r.units = 0, 0, 0, dist.Sum, r.units[:0]
	for _, use := range o.list[:o.forward] {
		if use.u.trained().n > 0 && !slices.Contains(r.units, use.u) {
			r.units = append(r.units, use.u)
		}
	}
	slices.Reverse(r.units)
}

// beginReductions counts the gradients that will come.
func (s *Sharding) beginReductions() {
	r := &s.reductions
	r.begin(&s.order)
	for _, u := range r.units {
		u.waiting = 0
		for _, pc := range u.pieces {
			if t := pc.p.Tape(); t != nil {
				r.sum = dist.Sum.In(t)
			}
			if pc.p.HasGrad() && !pc.hasGrad { // reducing the unit would overwrite it
				s.fail(fmt.Errorf("gradient of %s was not consumed: between two Backwards, call Step of an optimizer that has it, or use More() "+
					"(Param.Consume drops it)", pc.p.Name()))
			}
			if pc.p.Awaited() {
				u.waiting++
			}
		}
		u.complete = u.waiting == 0
	}
}

// reducing reports whether this Backward communicates.
func (s *Sharding) reducing() bool { return s.last || s.cfg.Stage > 1 && !s.cfg.OncePerStep }

// reduceReady issues the reductions of complete units, in the order of all ranks. A rank that did not use a unit reduces
// zeros at the same place in the order, and not later: other ranks may wait for that before they go on.
func (s *Sharding) reduceReady() {
	r := &s.reductions
	for r.issued < len(r.units) && r.units[r.issued].complete {
		s.reduce()
	}
	s.must(s.finishReductions(false))
}

// finishReductions finishes those reductions that are over, or waits for all that were issued.
func (s *Sharding) finishReductions(wait bool) error {
	r, err := &s.reductions, error(nil)
	for err == nil && r.hopped < r.issued && (wait || r.units[r.hopped].reducing.Done()) {
		err = s.hop()
	}
	for err == nil && r.waited < r.hopped && (wait || r.units[r.waited].reducing.Done()) {
		err = s.waitReduce()
	}
	return err
}

// reduce starts to reduce the next unit in the order. Parameters without a gradient contribute zeros.
func (s *Sharding) reduce() {
	u := s.reductions.units[s.reductions.issued]
	if !u.gradsLent {
		s.lendGradients(u)
	}
	for _, pc := range u.pieces {
		s.must(pc.waitPending())
		if !pc.hasGrad && !pc.grad.IsZero() {
			s.exec.Fill(pc.grad, 0)
		}
		pc.hasGrad = false
	}
	s.reductions.issued++
	if u.hops != nil {
		u.reducing = u.hops.Start()
		return
	}
	dst := u.shard
	if u.accumulated {
		dst = u.localGrad
	}
	u.reducing = u.over.reduces.ReduceScatterV(dst, u.grads, u.trained().counts, s.reductions.sum)
}

// hop issues the second hop of the oldest unit that lacks it, with Config.Grads. It waits for the first one.
func (s *Sharding) hop() error {
	u := s.reductions.units[s.reductions.hopped]
	s.reductions.hopped++
	if u.hops == nil {
		return nil
	}
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s in a host: %w", u.name, err)
	}
	u.reducing = u.hops.Hop()
	return nil
}

// waitReduce waits for the oldest reduction in flight.
func (s *Sharding) waitReduce() error {
	if s.reductions.hopped == s.reductions.waited {
		if err := s.hop(); err != nil {
			return err
		}
	}
	u := s.reductions.units[s.reductions.waited]
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s: %w", u.name, err)
	}
	s.reductions.waited++
	switch {
	case u.hops != nil:
		if !u.accumulated {
			s.exec.Fill(u.shard, 0)
		}
		u.hops.Finish()
	case u.accumulated && u.shard.Len() > 0:
		a := s.exec.Args(tensor.OpAddTo, u.shard.DType()).Out(u.shard).In(u.localGrad)
		a.NDim, a.Dim[0], a.Stride[0][0], a.Stride[1][0] = 1, u.shard.Len(), 1, 1
		s.exec.Launch()
	}
	u.accumulated = true
	s.returnGradients(u)
	if s.last && u.over.copyReduces != nil {
		u.reducing = u.over.copyReduces.AllReduce(u.shard, s.reductions.sum)
	}
	return nil
}

// lendGradients gives the gradients of u memory for this Backward.
func (s *Sharding) lendGradients(u *Unit) {
	u.gradsLent = true
	if s.cfg.Stage > 1 {
		least := inFlight
		if s.exec.Recording() != nil { // which takes no memory
			least = 0
		}
		for u.gradPool.Exhausted(least) && s.reductions.waited < s.reductions.issued {
			s.must(s.waitReduce())
		}
		u.gradPool.Lend(u.grads)
	}
	for _, pc := range u.pieces {
		if !pc.grad.IsZero() {
			pc.p.Grad = pc.grad
		}
	}
}

func (s *Sharding) returnGradients(u *Unit) {
	u.gradsLent = false
	u.gradPool.GiveBack(u.grads)
	if u.hops != nil {
		u.hops.Free()
	}
}

// abandonBackward cleans up after a Backward that failed. The gradients of this Backward and of the microbatches before it are dropped,
// as Tape.Reset does.
func (s *Sharding) abandonBackward() {
	for _, u := range s.reductions.units {
		_ = u.reducing.Wait() // an error poisons the group: the next operation returns it
		for _, pc := range u.pieces {
			_ = pc.waitPending() // what failed is dropped
			pc.hasGrad, pc.stepHasGrad = false, false
		}
		s.returnGradients(u)
		u.accumulated = false
	}
}

// waitGradients waits until the gradients that stay may be read, or added to.
func (s *Sharding) waitGradients() error {
	for _, u := range s.reductions.units {
		for _, pc := range u.pieces {
			if err := pc.waitPending(); err != nil {
				return fmt.Errorf("fsdp: completing the gradient of %s: %w", pc.p.Name(), err)
			}
		}
	}
	return nil
}

// waitPending waits until the gradient may be read.
func (pc *piece) waitPending() error {
	after := pc.after
	pc.after = tensor.Pending{}
	return after.Wait()
}

// publishGradients sets the gradient of each parameter to this rank's part of the sum.
func (s *Sharding) publishGradients() error {
	n := tensor.Data[int32](s.usage)
	s.changes.updated = nil
	for _, u := range s.reductions.units {
		if s.last {
			if err := u.reducing.Wait(); err != nil {
				return fmt.Errorf("fsdp: summing gradients of %s over copies: %w", u.name, err)
			}
			u.accumulated = false
			u.trained().change()
			tensor.Copy(u.offloaded, u.shard)
		}
		for _, pc := range u.pieces {
			if pc.grad.IsZero() {
				continue
			}
			p := pc.p
			p.Grad = pc.part
			p.Consume() // the next microbatch overwrites
			if s.last && n[pc.slot] > 0 {
				p.FillGrad()
				s.changes.updated = p
			}
			pc.stepHasGrad = pc.stepHasGrad && !s.last
		}
	}
	if r, p := s.exec.Recording(), s.changes.updated; r != nil && s.last {
		r.Host(func() { s.changes.updated = p })
	}
	return nil
}
