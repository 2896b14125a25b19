package fsdp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// inFlight is the number of units whose whole gradients are in memory at a time: Backward writes one, and one is being reduced. Kept
// units do not count. If Backward needs more units at once, there are more.
const inFlight = 2

// backward is the state of a Backward.
type backward struct {
	running      bool
	last         bool    // of the optimizer's step
	sum          dist.Op // in the step of the tape
	reduceOrder  []*Unit // the order in which units are reduced
	ordered      int     // entries of forward that reduceOrder was made from
	reduceIssued int     // the first one of reduceOrder that was not issued
	hopped       int     // the first one whose second hop was not issued
	reduceDone   int     // the first one of reduceOrder that was not waited for
	gradPool     pool    // memory of whole gradients, but for kept units
	usage        tensor.Tensor
}

func (s *Sharding) initBackward() {
	dev := s.exec.Device()
	s.orderVote = tensor.NewStaging(tensor.Communication, dev, tensor.Int32, 2)
	n := 3 // more than in a vote, so that one is not taken for the other
	for _, u := range s.units {
		n += 1 + len(u.pieces)
	}
	s.usage = tensor.NewStaging(tensor.Communication, dev, tensor.Int32, n)
	s.ordered = -1
}

// BackwardBegin completes the forward pass.
func (s *Sharding) BackwardBegin(last bool) {
	if s.running {
		s.abandonBackward()
		s.checks.Forget()
	}
	s.running, s.last = true, last
	if s.issued > 0 || s.pos > 0 {
		s.skipTo(s.forward)
	} else { // another tape's Backward came after this one's forward pass
		s.pos, s.issued = s.forward, s.forward
	}
	s.prefetch(tensor.Backward)
	if s.ordered != s.forward {
		s.setReduceOrder()
	}
	s.reduceIssued, s.hopped, s.reduceDone, s.sum = 0, 0, 0, dist.Sum
	for _, u := range s.reduceOrder {
		u.waiting = 0
		for _, pc := range u.pieces {
			if t := pc.p.Tape(); t != nil {
				s.sum = dist.Sum.In(t)
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
	if s.reducing() {
		s.reduceReady()
	}
}

// reduceReady issues the reductions of complete units, in the order of all ranks. A rank that did not use a unit reduces
// zeros at the same place in the order, and not later: other ranks may wait for that before they go on.
func (s *Sharding) reduceReady() {
	for s.reduceIssued < len(s.reduceOrder) && s.reduceOrder[s.reduceIssued].complete {
		s.reduceNext()
	}
	done := func(at int) bool { return s.reduceOrder[at].reducing.Done() }
	for s.hopped < s.reduceIssued && done(s.hopped) {
		s.must(s.hop())
	}
	for s.reduceDone < s.hopped && done(s.reduceDone) {
		s.must(s.finishReduction())
	}
}

// setReduceOrder sets in which order units are reduced: from the last one used in forward to the first one, which is the
// order in which their gradients are completed.
func (s *Sharding) setReduceOrder() {
	s.ordered, s.reduceOrder = s.forward, s.reduceOrder[:0]
	for _, e := range s.list[:s.forward] {
		if e.u.trained().n > 0 && !slices.Contains(s.reduceOrder, e.u) {
			s.reduceOrder = append(s.reduceOrder, e.u)
		}
	}
	slices.Reverse(s.reduceOrder)
}

// abandonBackward cleans up after a Backward that failed. The gradients of this Backward and of the microbatches before it are dropped,
// as Tape.Reset does.
func (s *Sharding) abandonBackward() {
	for _, u := range s.reduceOrder {
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
	for _, u := range s.reduceOrder {
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

// lendGradients gives the gradients of u memory for this Backward.
func (s *Sharding) lendGradients(u *Unit) {
	u.gradsLent = true
	if s.cfg.Stage > 1 {
		full := u.gradPool.allocated >= inFlight || s.exec.Recording() != nil // which takes no memory
		for len(u.gradPool.free) == 0 && full && s.reduceDone < s.reduceIssued {
			s.must(s.finishReduction())
		}
		u.gradBuf = u.gradPool.lend(u.grads)
	}
	for _, pc := range u.pieces {
		if !pc.grad.IsZero() {
			pc.p.Grad = pc.grad
		}
	}
}

func (s *Sharding) returnGradients(u *Unit) {
	u.gradsLent = false
	if !u.gradBuf.IsZero() {
		u.gradPool.giveBack(u.gradBuf, u.grads)
		u.gradBuf = tensor.Tensor{}
	}
	if h := u.hops; h != nil && !h.buf.IsZero() {
		s.hosts.codes.giveBack(h.buf, h.codes)
		h.buf = tensor.Tensor{}
	}
}

// reducing reports whether this Backward communicates.
func (s *Sharding) reducing() bool { return s.last || s.cfg.Stage > 1 && !s.cfg.OncePerStep }

// GradReady counts a gradient, and starts to reduce the units that are complete, in the order of all ranks. It does not wait for after:
// reduceNext does.
func (s *Sharding) GradReady(p *tensor.Param, after tensor.Pending) tensor.Pending {
	pc := s.of[p]
	if pc.grad.IsZero() {
		s.fail(fmt.Errorf("%s was frozen at Attach, and unfrozen since: it has no room for a gradient; unfreeze it before Attach, "+
			"and freeze it again afterwards", p.Name()))
	}
	s.checks.Note(p)
	pc.after = after
	pc.hasGrad, pc.stepHasGrad = true, true
	u := pc.u
	if u.complete {
		s.fail(fmt.Errorf("gradient of %s came after those of its unit were complete", p.Name()))
	}
	if !u.gradsLent { // the gradient was computed before this Backward began, and is added now (see tensor.DeferWeights)
		s.lendGradients(u)
	}
	if u.waiting--; u.waiting > 0 || !s.reducing() {
		return after
	}
	u.complete = true
	s.reduceReady()
	return u.reducing.Pending()
}

// reduceNext starts to reduce the next unit in the order. Parameters without a gradient contribute zeros.
func (s *Sharding) reduceNext() {
	u := s.reduceOrder[s.reduceIssued]
	if !u.gradsLent {
		s.lendGradients(u)
	}
	for _, pc := range u.pieces {
		s.must(pc.waitPending())
		if !pc.hasGrad && !pc.grad.IsZero() {
			s.clear(pc.grad)
		}
		pc.hasGrad = false
	}
	s.reduceIssued++
	if h := u.hops; h != nil {
		h.buf = s.hosts.codes.lend(h.codes)
		u.reducing = s.start(&h.near, s.hosts.near)
		return
	}
	dst := u.shard
	if u.accumulated {
		dst = u.localGrad
	}
	u.reducing = u.over.reduces.ReduceScatterV(dst, u.grads, u.trained().counts, s.sum)
}

// finishReduction waits for the oldest reduction in flight.
func (s *Sharding) finishReduction() error {
	if s.hopped == s.reduceDone {
		if err := s.hop(); err != nil {
			return err
		}
	}
	u := s.reduceOrder[s.reduceDone]
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s: %w", u.name, err)
	}
	s.reduceDone++
	switch {
	case u.hops != nil:
		if !u.accumulated {
			s.clear(u.shard)
		}
		s.addUp(&u.hops.far)
	case u.accumulated && u.shard.Len() > 0:
		a := s.exec.Args(tensor.OpAddTo, u.shard.DType()).Out(u.shard).In(u.localGrad)
		a.Rank, a.Dim[0], a.Stride[0][0], a.Stride[1][0] = 1, u.shard.Len(), 1, 1
		s.exec.Launch()
	}
	u.accumulated = true
	s.returnGradients(u)
	if s.last && u.over.copyReduces != nil {
		u.reducing = u.over.copyReduces.AllReduce(u.shard, s.sum)
	}
	return nil
}

// BackwardDone completes what this rank did not use, waits for all reductions, and hands the optimizer its gradients.
func (s *Sharding) BackwardDone(bool) error {
	s.endGathers()
	if err := s.checks.BackwardDone(s.last); err != nil {
		return s.abort(fmt.Errorf("rank %d: %w", s.cfg.Shard.Ranks()[s.cfg.Shard.Rank()], err))
	}
	if !s.reducing() {
		s.running = false
		return s.waitGradients()
	}
	for s.reduceIssued < len(s.reduceOrder) {
		s.reduceNext()
	}
	if s.last {
		if err := s.compareUsed(); err != nil {
			return err
		}
	}
	for s.hopped < len(s.reduceOrder) {
		if err := s.hop(); err != nil {
			return err
		}
	}
	for s.reduceDone < len(s.reduceOrder) {
		if err := s.finishReduction(); err != nil {
			return err
		}
	}
	if err := s.publishGradients(); err != nil {
		return err
	}
	s.running = false
	if !s.last {
		return nil
	}
	return s.check()
}

// compareUsed counts on how many ranks each parameter, and each unit, has gradients.
func (s *Sharding) compareUsed() error {
	n := tensor.Data[int32](s.usage)
	clear(n)
	i := len(s.units)
	for _, u := range s.reduceOrder {
		for _, pc := range u.pieces {
			if pc.stepHasGrad {
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

// compareReplays makes each replay compare the parameters that ranks use with those of the recording.
func (s *Sharding) compareReplays(r *tensor.Recording) error {
	n := tensor.Data[int32](s.usage)
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
	n := tensor.Data[int32](s.usage)
	op := dist.Sum
	if s.hosts.near != nil { // no reduction has compared what ranks must have alike
		op = s.sum
	}
	if err := s.exchange(s.usage, op); err != nil {
		return fmt.Errorf("fsdp: comparing which units were used%s: %w", s.unused(), err)
	}
	ranks := int32(s.all.size())
	for _, u := range s.units {
		if k := n[u.index]; k != 0 && k != ranks {
			return s.abort(fmt.Errorf("%s was used on %d of %d ranks", u.name, k, ranks))
		}
	}
	return nil
}

// unused names the units without a gradient in this step, for the error of ranks that still gather one.
func (s *Sharding) unused() string {
	var names []string
	for _, u := range s.units {
		if trains := func(pc *piece) bool { return !pc.p.Frozen() }; slices.ContainsFunc(u.pieces, trains) &&
			!slices.ContainsFunc(u.pieces, func(pc *piece) bool { return pc.stepHasGrad }) {
			names = append(names, u.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (this rank has not used " + strings.Join(names, ", ") + ")"
}

// publishGradients sets the gradient of each parameter to this rank's part of the sum.
func (s *Sharding) publishGradients() error {
	n, i := tensor.Data[int32](s.usage), len(s.units)
	s.updated = nil
	for _, u := range s.reduceOrder {
		if s.last {
			if err := u.reducing.Wait(); err != nil {
				return fmt.Errorf("fsdp: summing gradients of %s over copies: %w", u.name, err)
			}
			u.accumulated = false
			u.trained().change()
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
				s.updated = p
			}
			pc.stepHasGrad = pc.stepHasGrad && !s.last
		}
	}
	if r, p := s.exec.Recording(), s.updated; r != nil && s.last {
		r.Host(func() { s.updated = p })
	}
	return nil
}
