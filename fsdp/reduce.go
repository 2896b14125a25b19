package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// awaitGradients counts the gradients that will come in this Backward.
func (s *Sharding) awaitGradients() {
	s.sum = dist.Sum
	for _, i := range s.order.Reduces() {
		awaited := 0
		for _, pc := range s.units[i].pieces {
			if t := pc.p.Tape(); t != nil {
				s.sum = dist.Sum.In(t)
			}
			if pc.p.HasGrad() && !pc.hasGrad { // reducing the unit would overwrite it
				s.fail(fmt.Errorf("gradient of %s was not consumed: between two Backwards, call Step of an optimizer that has it, or use More() "+
					"(Param.Consume drops it)", pc.p.Name()))
			}
			if pc.p.Awaited() {
				awaited++
			}
		}
		s.order.Await(i, awaited)
	}
}

// reducing reports whether this Backward communicates.
func (s *Sharding) reducing() bool { return s.last || s.cfg.Stage > 1 && !s.cfg.OncePerStep }

// lendGradients gives the gradients of u memory for this Backward.
func (s *Sharding) lendGradients(u *Unit) {
	if s.cfg.Stage > 1 {
		u.gradPool.Lend(u.grads)
	}
	for _, pc := range u.pieces {
		if !pc.grad.IsZero() {
			pc.p.Grad = pc.grad
		}
	}
}

// reduce starts to reduce a unit. Parameters without a gradient contribute zeros.
func (s *Sharding) reduce(u *Unit) error {
	for _, pc := range u.pieces {
		if err := pc.waitPending(); err != nil {
			return err
		}
		if !pc.hasGrad && !pc.grad.IsZero() {
			s.exec.Fill(pc.grad, 0)
		}
		pc.hasGrad = false
	}
	if u.hops != nil {
		u.reducing = u.hops.Start()
		return nil
	}
	dst := u.gradShard
	if u.accumulated {
		dst = u.gradScratch
	}
	u.reducing = u.over.Reduces.ReduceScatterV(dst, u.grads, u.trained().counts, s.sum)
	return nil
}

// finishReductions finishes those reductions that are over, or waits for all that were issued.
func (s *Sharding) finishReductions(wait bool) error {
	over := func(unit int) bool { return wait || s.units[unit].reducing.Done() }
	for {
		todo := s.order.Finish(over)
		if len(todo) == 0 {
			return nil
		}
		if err := s.perform(todo); err != nil {
			return err
		}
	}
}

// hop waits for the first hop of a unit, with Config.Grads, and issues the second one.
func (s *Sharding) hop(u *Unit) error {
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s in a host: %w", u.name, err)
	}
	u.reducing = u.hops.Hop()
	return nil
}

// waitReduce waits for the reduction of a unit.
func (s *Sharding) waitReduce(u *Unit) error {
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s: %w", u.name, err)
	}
	switch {
	case u.hops != nil:
		if !u.accumulated {
			s.exec.Fill(u.gradShard, 0)
		}
		u.hops.Finish()
	case u.accumulated && u.gradShard.Len() > 0:
		a := s.exec.Args(tensor.OpAddTo, u.gradShard.DType()).Out(u.gradShard).In(u.gradScratch)
		a.NDim, a.Dim[0], a.Stride[0][0], a.Stride[1][0] = 1, u.gradShard.Len(), 1, 1
		s.exec.Launch()
	}
	u.accumulated = true
	u.returnGradients()
	if s.last && u.over.CopyReduces != nil {
		u.reducing = u.over.CopyReduces.AllReduce(u.gradShard, s.sum)
	}
	return nil
}

func (u *Unit) returnGradients() {
	u.gradPool.GiveBack(u.grads)
	if u.hops != nil {
		u.hops.Free()
	}
}

// abandonBackward cleans up after a Backward that failed. The gradients of this Backward and of the microbatches before it are dropped,
// as Tape.Reset does.
func (s *Sharding) abandonBackward() {
	s.order.Abandon()
	for _, i := range s.order.Reduces() {
		u := s.units[i]
		_ = u.reducing.Wait() // an error poisons the group: the next operation returns it
		for _, pc := range u.pieces {
			_ = pc.waitPending() // what failed is dropped
			pc.hasGrad, pc.stepHasGrad = false, false
		}
		u.returnGradients()
		u.accumulated = false
	}
}

// waitGradients waits until the gradients that stay may be read, or added to.
func (s *Sharding) waitGradients() error {
	for _, i := range s.order.Reduces() {
		for _, pc := range s.units[i].pieces {
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
	if s.last {
		s.order.Stepped()
	}
	for _, i := range s.order.Reduces() {
		u := s.units[i]
		if s.last {
			if err := u.reducing.Wait(); err != nil {
				return fmt.Errorf("fsdp: summing gradients of %s over copies: %w", u.name, err)
			}
			u.accumulated = false
			tensor.Copy(u.offloaded, u.gradShard)
		}
		for _, pc := range u.pieces {
			if pc.grad.IsZero() {
				continue
			}
			p := pc.p
			p.Grad = pc.gradPart
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
