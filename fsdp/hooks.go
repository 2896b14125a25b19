package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/tensor"
)

// What a tape calls, in this order: BeforeUse in forward, BackwardBegin, BeforeUse and GradReady in Backward, BackwardDone. Changed comes
// from Param.Changed.

// Changed makes the next forward pass gather the unit of p. Until then, values that stay cannot be read: but for this rank's part they are
// old.
func (s *Sharding) Changed(p *tensor.Param) {
	sec := s.of[p].in
	if p.Value != s.of[p].value {
		panic(&tensor.Failure{Op: "fsdp", Err: fmt.Errorf("%s has another tensor as Value than Attach gave it: call SetValue before Attach, or "+
			"write this rank's part behind it (tensor.Copy to Local, and Changed)", p.Name())})
	}
	if sec.stays != nil {
		tensor.Raw(sec.flat).Place(nil)
	}
	s.order.Changed(s.of[p].u.index, sec.which)
	s.changes.edited = true
}

// BeforeUse gathers the unit of p, unless it is gathered. In Backward it also gives memory to the gradients of the unit.
func (s *Sharding) BeforeUse(p *tensor.Param, phase tensor.Phase) {
	u := s.of[p].u
	if phase == tensor.Backward {
		s.do(s.order.Use(u.index, order.Backward))
		return
	}
	s.noticeChanges(u)
	s.do(s.order.Use(u.index, order.Forward))
}

// BackwardBegin completes the forward pass.
func (s *Sharding) BackwardBegin(last bool) {
	s.checks.Begin("fsdp", s.running)
	if s.running {
		s.abandonBackward()
	}
	s.running, s.last = true, last
	s.do(s.order.BeginBackward(s.reducing(), s.exec.Recording() != nil))
	s.awaitGradients()
	s.do(s.order.Ready())
	s.must(s.finishReductions(false))
}

// GradReady counts a gradient, and starts to reduce the units that are complete, in the order of all ranks. It does not wait for after:
// reduce does.
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
	if s.order.Complete(u.index) {
		s.fail(fmt.Errorf("gradient of %s came after those of its unit were complete", p.Name()))
	}
	s.do(s.order.GradReady(u.index))
	if !s.order.Complete(u.index) {
		return after
	}
	s.must(s.finishReductions(false))
	return u.reducing.Pending()
}

// BackwardDone completes what this rank did not use, waits for all reductions, and hands the optimizer its gradients.
func (s *Sharding) BackwardDone(bool) error {
	s.do(s.order.EndBackward())
	if err := s.checks.BackwardDone(s.last, s.params); err != nil {
		return s.abort(fmt.Errorf("rank %d: %w", s.cfg.Shard.GlobalRank(), err))
	}
	if !s.reducing() {
		s.running = false
		return s.waitGradients()
	}
	if s.last {
		if err := s.compareUsed(); err != nil {
			return err
		}
	}
	if err := s.finishReductions(true); err != nil {
		return err
	}
	if err := s.publishGradients(); err != nil {
		return err
	}
	s.running = false
	if !s.last {
		return nil
	}
	return s.compareStep()
}

// buffers owns the model's buffers: compareStep compares their values, by name. A tape calls it for nothing.
type buffers struct{ *Sharding }

func (buffers) Changed(*tensor.Param)                 {}
func (buffers) BeforeUse(*tensor.Param, tensor.Phase) {}
func (buffers) BackwardBegin(bool)                    {}
func (buffers) BackwardDone(bool) error               { return nil }
