package fsdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// inFlight is how many units' whole gradients are in memory at a time, beside those of kept units, unless Backward needs
// more at once: one that is being written, one that is being reduced.
const inFlight = 2

// sums is the state of a Backward.
type sums struct {
	running bool
	last    bool    // of the optimizer's step
	turns   []*Unit // the order in which units are reduced
	known   int     // entries of forward that turns was made from
	next    int     // the first one of turns that was not issued
	done    int     // the first one of turns that was not waited for
	wholes  pool    // memory of whole gradients, but for kept units
	used    tensor.Tensor
}

func (s *Sharding) initSums() {
	dev := s.exec.Device()
	s.vote = tensor.NewStaging(tensor.Communication, dev, tensor.Int32, 2)
	n := 3 // more than in a vote, so that one is not taken for the other
	for _, u := range s.units {
		n += 1 + len(u.pieces)
	}
	s.used = tensor.NewStaging(tensor.Communication, dev, tensor.Int32, n)
	s.known = -1
}

// BackwardBegin completes the forward pass.
func (s *Sharding) BackwardBegin(last bool) {
	if s.running {
		s.abandon()
		s.checks.Forget()
	}
	s.running, s.last = true, last
	if s.issued > 0 || s.pos > 0 {
		s.pass(s.forward)
	} else { // another tape's Backward came after this one's forward pass
		s.pos, s.issued = s.forward, s.forward
	}
	s.prefetch(tensor.Backward)
	if s.known != s.forward {
		s.takeTurns()
	}
	s.next, s.done = 0, 0
	for _, u := range s.turns {
		u.waiting = 0
		for _, pc := range u.pieces {
			if pc.p.HasGrad() && !pc.got { // reducing the unit would overwrite it
				s.fail(fmt.Errorf("gradient of %s was not consumed: between two Backwards, call Step of an optimizer that has it, or use More()", pc.p.Name()))
			}
			if pc.p.Awaited() {
				u.waiting++
			}
		}
		u.complete = u.waiting == 0
	}
	if s.reducing() {
		s.advance()
	}
}

// advance issues the reductions of units that are complete, in their turn. A rank that did not use a unit reduces zeros
// when its turn comes, and not later: others may wait for it before they go on.
func (s *Sharding) advance() {
	for s.next < len(s.turns) && s.turns[s.next].complete {
		s.reduceNext()
	}
	for s.done < s.next && s.turns[s.done].reducing.Done() {
		s.must(s.finish())
	}
}

// takeTurns lays down in which order units are reduced: from the last one used in forward to the first one, which is the
// order in which their gradients are completed.
func (s *Sharding) takeTurns() {
	s.known, s.turns = s.forward, s.turns[:0]
	for _, e := range s.list[:s.forward] {
		if e.u.trained().n > 0 && !slices.Contains(s.turns, e.u) {
			s.turns = append(s.turns, e.u)
		}
	}
	slices.Reverse(s.turns)
}

// abandon cleans up after a Backward that failed. What it and the microbatches before it have computed is dropped, as
// Tape.Reset drops gradients.
func (s *Sharding) abandon() {
	for _, u := range s.turns {
		_ = u.reducing.Wait() // an error poisons the group: the next operation returns it
		for _, pc := range u.pieces {
			_ = pc.settle() // what failed is dropped
			pc.got, pc.any = false, false
		}
		s.takeBack(u)
		u.again = false
	}
}

// settle waits for what must be over before gradients that stay are read or added to.
func (s *Sharding) settle() error {
	for _, u := range s.turns {
		for _, pc := range u.pieces {
			if err := pc.settle(); err != nil {
				return fmt.Errorf("fsdp: completing the gradient of %s: %w", pc.p.Name(), err)
			}
		}
	}
	return nil
}

// settle waits for what must be over before the gradient is read.
func (pc *piece) settle() error {
	after := pc.after
	pc.after = tensor.Pending{}
	return after.Wait()
}

// lendGrads gives the gradients of u memory for this Backward.
func (s *Sharding) lendGrads(u *Unit) {
	u.lent = true
	if s.cfg.Stage > 1 {
		full := u.wholes.made >= inFlight || s.exec.Recording() != nil // which takes no memory
		for len(u.wholes.free) == 0 && full && s.done < s.next {
			s.must(s.finish())
		}
		u.gbuf = u.wholes.lend(u.grads)
	}
	for _, pc := range u.pieces {
		if !pc.grad.IsZero() {
			pc.p.Grad = pc.grad
		}
	}
}

func (s *Sharding) takeBack(u *Unit) {
	u.lent = false
	if !u.gbuf.IsZero() {
		u.wholes.giveBack(u.gbuf, u.grads)
		u.gbuf = tensor.Tensor{}
	}
}

// reducing reports whether this Backward communicates.
func (s *Sharding) reducing() bool { return s.last || s.cfg.Stage > 1 && !s.cfg.HoldGrads }

// GradReady counts a gradient, and reduces the units that are complete, in their turn. It does not wait for after: who
// issues the reduction does.
func (s *Sharding) GradReady(p *tensor.Param, after tensor.Pending) tensor.Pending {
	pc := s.of[p]
	if pc.grad.IsZero() {
		s.fail(fmt.Errorf("%s was frozen at Attach, and unfrozen since: it has no room for a gradient; unfreeze it before Attach, and freeze it again afterwards", p.Name()))
	}
	s.checks.Note(p)
	pc.after = after
	pc.got, pc.any = true, true
	u := pc.u
	if u.complete {
		s.fail(fmt.Errorf("gradient of %s came after those of its unit were complete", p.Name()))
	}
	if u.waiting--; u.waiting > 0 || !s.reducing() {
		return after
	}
	u.complete = true
	s.advance()
	return u.reducing.Pending()
}

// reduceNext issues the reduction of the unit whose turn it is. Parameters without a gradient contribute zeros.
func (s *Sharding) reduceNext() {
	u := s.turns[s.next]
	if !u.lent {
		s.lendGrads(u)
	}
	for _, pc := range u.pieces {
		s.must(pc.settle())
		if !pc.got && !pc.grad.IsZero() {
			s.exec.Args(tensor.OpFill, pc.grad.DType()).Out(pc.grad)
			s.exec.Launch()
		}
		pc.got = false
	}
	dst := u.shard
	if u.again {
		dst = u.gmine
	}
	u.reducing = u.over.reduces.ReduceScatterV(dst, u.grads, u.trained().counts, dist.Sum)
	s.next++
}

// finish waits for the oldest reduction in flight.
func (s *Sharding) finish() error {
	u := s.turns[s.done]
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s: %w", u.name, err)
	}
	s.done++
	if u.again && u.shard.Len() > 0 {
		a := s.exec.Args(tensor.OpAddTo, u.shard.DType()).Out(u.shard).In(u.gmine)
		a.Rank, a.Dim[0], a.Stride[0][0], a.Stride[1][0] = 1, u.shard.Len(), 1, 1
		s.exec.Launch()
	}
	u.again = true
	s.takeBack(u)
	if s.last && u.over.copies != nil {
		u.reducing = u.over.copies.AllReduce(u.shard, dist.Sum)
	}
	return nil
}

// BackwardDone completes what this rank did not use, waits for all reductions, and hands the optimizer its gradients.
func (s *Sharding) BackwardDone(bool) error {
	s.endGathers()
	if !s.reducing() {
		s.running = false
		return s.settle()
	}
	for s.next < len(s.turns) {
		s.reduceNext()
	}
	if s.last {
		if err := s.compare(); err != nil {
			return err
		}
	}
	for s.done < len(s.turns) {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if err := s.publish(); err != nil {
		return err
	}
	s.running = false
	if !s.last {
		return nil
	}
	return s.check()
}

// compare counts on how many ranks each parameter, and each unit, has gradients.
func (s *Sharding) compare() error {
	n := tensor.Data[int32](s.used)
	clear(n)
	i := len(s.units)
	for _, u := range s.turns {
		for _, pc := range u.pieces {
			if pc.any {
				n[u.index], n[i] = 1, 1
			}
			i++
		}
	}
	if r := s.exec.Recording(); r != nil {
		return s.compareReplays(r)
	}
	return s.sumUsed()
}

// compareReplays has each replay compare what the step uses when it is recorded.
func (s *Sharding) compareReplays(r *tensor.Recording) error {
	n := tensor.Data[int32](s.used)
	mine, sum := slices.Clone(n), []int32(nil)
	return r.Between(func() error {
		copy(n, mine)
		if err := s.sumUsed(); err != nil {
			return err
		}
		if sum == nil {
			sum = slices.Clone(n)
		}
		for i, k := range n {
			if (k > 0) != (sum[i] > 0) {
				return s.abort(errors.New("other ranks use other parameters than when this captured step was recorded"))
			}
		}
		return nil
	})
}

// sumUsed adds up what ranks have used.
func (s *Sharding) sumUsed() error {
	n := tensor.Data[int32](s.used)
	if err := s.exchange(s.used, dist.Sum); err != nil {
		return fmt.Errorf("fsdp: comparing which units were used: %w", err)
	}
	ranks := int32(s.all.size())
	for _, u := range s.units {
		if k := n[u.index]; k != 0 && k != ranks {
			return s.abort(fmt.Errorf("%s was used on %d of %d ranks", u.name, k, ranks))
		}
	}
	return nil
}

// publish gives each parameter this rank's part of its gradient.
func (s *Sharding) publish() error {
	n, i := tensor.Data[int32](s.used), len(s.units)
	s.witness = nil
	for _, u := range s.turns {
		if s.last {
			if err := u.reducing.Wait(); err != nil {
				return fmt.Errorf("fsdp: summing gradients of %s over copies: %w", u.name, err)
			}
			u.again, u.trained().fresh = false, false
			s.download(u.host, u.shard)
		}
		for _, pc := range u.pieces {
			i++
			if pc.grad.IsZero() {
				continue
			}
			p := pc.p
			p.Grad = pc.part
			p.Consume() // the next microbatch overwrites
			if s.last && n[i-1] > 0 {
				p.FillGrad()
				s.witness = p
			}
			pc.any = pc.any && !s.last
		}
	}
	if r, p := s.exec.Recording(), s.witness; r != nil && s.last {
		r.Host(func() { s.witness = p })
	}
	return nil
}
