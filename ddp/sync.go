package ddp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// sync owns the gradients of one rank.
type sync struct {
	g           *dist.Group
	over        func(*tensor.Param) *dist.Group
	exec        *tensor.Exec
	hook        CommHook
	twoPass     stateful // the hook, if it communicates twice
	cap         int
	allowUnused bool

	all     nn.Params       // of the model
	params  []*tensor.Param // in bucket order
	buckets []*Bucket
	of      map[*tensor.Param]*Bucket

	last       bool            // the Backward that runs is the last one before the optimizer's step
	issued     int             // the first bucket that was not issued
	readyOrder []*tensor.Param // in the order in which gradients came about in the first step
	seen       map[*tensor.Param]bool
	rebuilt    bool          // or never: with AllowUnused the order of the first step says little
	used       tensor.Tensor // AllowUnused: 1 for each parameter that some rank used
	checks     dist.StepCheck
	running    bool // a Backward runs
}

// String names the owner of gradients in errors.
func (*sync) String() string { return "ddp" }

// BeforeUse does nothing: every rank holds all values.
func (s *sync) BeforeUse(*tensor.Param, tensor.Phase) {}

// BackwardBegin starts counting.
func (s *sync) BackwardBegin(last bool) {
	if s.running { // the one before failed
		s.checks.Forget()
	}
	s.running = true
	if !s.rebuilt && len(s.readyOrder) == len(s.params) {
		s.rebuild()
	} else {
		s.abandonBackward()
	}
	s.last, s.issued = last, 0
	tape := tapeOf(s.params)
	for _, b := range s.buckets {
		b.waiting, b.after, b.tape = len(b.params), b.after[:0], tape
	}
	if s.seen == nil {
		s.seen = make(map[*tensor.Param]bool, len(s.params))
	}
	clear(s.seen)
}

// tapeOf returns the tape whose Backward begins.
func tapeOf(params []*tensor.Param) *tensor.Tape {
	for _, p := range params {
		if t := p.Tape(); t != nil {
			return t
		}
	}
	return nil
}

// abandonBackward cleans up after a Backward that failed.
func (s *sync) abandonBackward() {
	s.readyOrder = s.readyOrder[:0]
	for _, b := range s.buckets[:s.issued] {
		_ = b.work.Wait() // an error poisons the group: the next operation returns it
	}
}

// rebuild makes the buckets again, in the order in which rank 0's gradients were ready in the first step. Then a bucket does not wait
// for one late gradient.
func (s *sync) rebuild() {
	s.rebuilt = true
	index := make(map[*tensor.Param]int, len(s.params))
	for i, p := range s.params {
		index[p] = i
	}
	order := make([]int, len(s.readyOrder))
	for i, p := range s.readyOrder {
		order[i] = index[p]
	}
	order, err := dist.BroadcastObject(s.g, order, 0)
	if err != nil {
		panic(&tensor.Failure{Op: "ddp: rebuilding buckets", Err: err})
	}
	params := make([]*tensor.Param, len(order))
	for i, k := range order {
		params[i] = s.params[k]
	}
	s.params = params
	s.build()
}

// GradReady counts a gradient, and starts to all-reduce the buckets that are full, in bucket order. A gradient may not be complete yet:
// countReady waits for that before it starts the bucket.
func (s *sync) GradReady(p *tensor.Param, after tensor.Pending) tensor.Pending {
	b := s.of[p]
	if b == nil {
		panic(&tensor.Failure{Op: "ddp", Err: fmt.Errorf("%s was frozen at Attach, and unfrozen since: nobody would sum its gradient; "+
			"unfreeze it before Attach, and freeze it again afterwards", p.Name())})
	}
	s.checks.Note(p)
	if !s.last {
		return after
	}
	if after.F != nil {
		b.after = append(b.after, after)
	}
	s.countReady(p)
	return b.work.Pending()
}

func (s *sync) countReady(p *tensor.Param) {
	s.seen[p] = true
	if !s.rebuilt {
		s.readyOrder = append(s.readyOrder, p)
	}
	s.of[p].waiting--
	for s.issued < len(s.buckets) && s.buckets[s.issued].waiting == 0 {
		b := s.buckets[s.issued]
		b.waitPending()
		b.work = s.hook.Start(b)
		s.issued++
	}
}

// Changed does nothing: every rank has all values.
func (s *sync) Changed(*tensor.Param) {}

// BackwardDone waits for all buckets.
func (s *sync) BackwardDone(last bool) error {
	s.running = false
	if err := s.checks.BackwardDone(last); err != nil {
		return fmt.Errorf("ddp: rank %d: %w", s.g.Ranks()[s.g.Rank()], err)
	}
	if !last || s.idle() {
		return nil
	}
	if err := s.completeUnused(); err != nil {
		return err
	}
	if err := s.waitBuckets(); err != nil {
		return err
	}
	markSummed(s.params)
	if err := s.checks.Replays("ddp", s.exec.Recording()); err != nil || !s.checks.Done(s.exec.Captures(), s.all) {
		return err
	}
	if err := s.checks.Rows("ddp", s.g.Axes(), s.g); err != nil {
		return err
	}
	if err := s.sameValues(); err != nil {
		return err
	}
	return s.sameFrozen()
}

// Unscaled is called by the optimizer that divides p's gradient by *by, the scale of the loss; nil is 1.
func (s *sync) Unscaled(p *tensor.Param, by *float64) {
	if s.twoPass != nil {
		s.twoPass.unscaled(p, by)
	}
}

// waitBuckets waits for the communication of all buckets. A hook with two passes then does its second one.
func (s *sync) waitBuckets() error {
	if s.twoPass != nil {
		for _, b := range s.buckets {
			if err := b.work.Wait(); err != nil {
				return err
			}
		}
		s.twoPass.Again(s.buckets)
		defer s.twoPass.done()
	}
	for _, b := range s.buckets {
		if err := b.work.Wait(); err != nil {
			return err
		}
		s.hook.Finish(b)
	}
	return nil
}

// markSummed marks gradients as summed, also those of earlier microbatches alone.
func markSummed(params []*tensor.Param) {
	for _, p := range params {
		if p.HasGrad() {
			p.FillGrad()
		}
	}
}

// idle reports whether the step was that of another model on the tape: this one is frozen, or its output was detached.
func (s *sync) idle() bool {
	return len(s.seen) == 0 && !s.allowUnused && !slices.ContainsFunc(s.params, (*tensor.Param).HasGrad)
}

// completeUnused handles parameters that got no gradient in the last Backward.
func (s *sync) completeUnused() error {
	var unused []*tensor.Param
	for _, p := range s.params {
		switch {
		case s.seen[p]:
		case p.HasGrad(): // from an earlier microbatch
			s.countReady(p)
		case p.Frozen(): // since Attach
			zero(s.exec, p.Grad)
			s.countReady(p)
		default:
			unused = append(unused, p)
		}
	}
	if !s.allowUnused {
		if len(unused) > 0 {
			return unusedError(unused)
		}
		return nil
	}
	return s.agreeOnUnused(unused)
}

// agreeOnUnused gives the parameters that this rank did not use zeros as gradients if another rank used them. What no
// rank used is left without a gradient.
func (s *sync) agreeOnUnused(unused []*tensor.Param) error {
	for _, p := range unused {
		zero(s.exec, p.Grad)
		s.countReady(p)
	}
	if s.used.IsZero() {
		s.used = tensor.NewStaging(tensor.Communication, s.g.Device(), tensor.Uint8, len(s.params))
	}
	used := tensor.Data[uint8](s.used)
	for i, p := range s.params {
		used[i] = 0
		if p.HasGrad() {
			used[i] = 1
		}
	}
	if err := s.g.AllReduce(s.used, dist.Max).Wait(); err != nil {
		return err
	}
	for i, p := range s.params {
		if used[i] == 1 && !p.HasGrad() {
			p.FillGrad()
		}
	}
	return nil
}

func zero(e *tensor.Exec, x tensor.Tensor) {
	e.Args(tensor.OpFill, x.DType()).Out(x)
	e.Launch()
}
