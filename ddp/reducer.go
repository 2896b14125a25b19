package ddp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// reducer owns the gradients of one rank, and sums them.
type reducer struct {
	g           *dist.Group
	over        func(*tensor.Param) *dist.Group
	exec        *tensor.Exec
	hook        CommHook
	stateful    StatefulHook // the hook, if it is one
	bucketBytes int
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
func (*reducer) String() string { return "ddp" }

// BeforeUse does nothing: every rank holds all values.
func (r *reducer) BeforeUse(*tensor.Param, tensor.Phase) {}

// BackwardBegin rebuilds the buckets after the first step, and starts counting.
func (r *reducer) BackwardBegin(last bool) {
	r.checks.Begin("ddp", r.running)
	r.running = true
	if !r.rebuilt && len(r.readyOrder) == len(r.params) {
		r.rebuild()
	} else {
		r.forgetBackward()
	}
	r.last, r.issued = last, 0
	tape := tapeOf(r.params)
	for _, b := range r.buckets {
		b.waiting, b.after, b.tape = len(b.Params), b.after[:0], tape
	}
	if r.seen == nil {
		r.seen = make(map[*tensor.Param]bool, len(r.params))
	}
	clear(r.seen)
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

// forgetBackward forgets the last Backward. If that failed, its operations may still be in flight: it waits for them.
func (r *reducer) forgetBackward() {
	r.readyOrder = r.readyOrder[:0]
	for _, b := range r.buckets[:r.issued] {
		_ = b.work.Wait() // an error poisons the group: the next operation returns it
	}
}

// rebuild makes the buckets again, in the order in which rank 0's gradients were ready in the first step. Then a bucket does not wait
// for one late gradient.
func (r *reducer) rebuild() {
	r.rebuilt = true
	index := make(map[*tensor.Param]int, len(r.params))
	for i, p := range r.params {
		index[p] = i
	}
	order := make([]int, len(r.readyOrder))
	for i, p := range r.readyOrder {
		order[i] = index[p]
	}
	order, err := dist.BroadcastObject(r.g, order, 0)
	if err != nil {
		panic(&tensor.Failure{Op: "ddp: rebuilding buckets", Err: err})
	}
	params := make([]*tensor.Param, len(order))
	for i, k := range order {
		params[i] = r.params[k]
	}
	r.params = params
	r.build()
}

// GradReady counts a gradient, and starts to all-reduce the buckets that are full, in bucket order. A gradient may not be complete yet:
// countReady waits for that before it starts the bucket.
func (r *reducer) GradReady(p *tensor.Param, after tensor.Pending) tensor.Pending {
	b := r.of[p]
	if b == nil {
		panic(&tensor.Failure{Op: "ddp", Err: fmt.Errorf("%s was frozen at Attach, and unfrozen since: nobody would sum its gradient; "+
			"unfreeze it before Attach, and freeze it again afterwards", p.Name())})
	}
	r.checks.Note(p)
	if !r.last {
		return after
	}
	if after.F != nil {
		b.after = append(b.after, after)
	}
	r.countReady(p)
	// Until the bucket is issued, this is the work of the last step, which is over: Backward writes nothing to p.Grad any more, and
	// BackwardDone waits for all.
	return b.work.Pending()
}

func (r *reducer) countReady(p *tensor.Param) {
	r.seen[p] = true
	if !r.rebuilt {
		r.readyOrder = append(r.readyOrder, p)
	}
	r.of[p].waiting--
	for r.issued < len(r.buckets) && r.buckets[r.issued].waiting == 0 {
		b := r.buckets[r.issued]
		b.waitPending()
		b.work = r.hook.Start(b)
		r.issued++
	}
}

// Changed does nothing: every rank has all values.
func (r *reducer) Changed(*tensor.Param) {}

// BackwardDone waits for all buckets.
func (r *reducer) BackwardDone(last bool) error {
	r.running = false
	if err := r.checks.BackwardDone(last, r.all); err != nil {
		return fmt.Errorf("ddp: rank %d: %w", r.g.GlobalRank(), err)
	}
	if !last || r.ofOtherModel() {
		return nil
	}
	if err := r.completeUnused(); err != nil {
		return err
	}
	if err := r.waitBuckets(); err != nil {
		return err
	}
	markSummed(r.params)
	if err := r.checks.Replays("ddp", r.exec.Recording()); err != nil || !r.checks.Done(r, capture.On(r.exec.Device()), r.all) {
		return err
	}
	if err := r.checks.Rows("ddp", r.g.Axes(), r.g); err != nil || !r.checks.Values() {
		return err
	}
	if err := r.sameValues(); err != nil {
		return err
	}
	return r.sameFrozen()
}

// waitBuckets waits for the communication of all buckets. A hook with state then communicates once more.
func (r *reducer) waitBuckets() error {
	if r.stateful != nil {
		for _, b := range r.buckets {
			if err := b.work.Wait(); err != nil {
				return err
			}
		}
		r.stateful.Arrived(r.buckets)
		for _, b := range r.buckets {
			b.work = r.stateful.Again(b)
		}
		defer r.stateful.Done()
	}
	for _, b := range r.buckets {
		if err := b.work.Wait(); err != nil {
			return err
		}
		r.hook.Finish(b)
	}
	return nil
}

// markSummed tells the optimizer that the gradients are sums, also of parameters that only earlier microbatches used.
func markSummed(params []*tensor.Param) {
	for _, p := range params {
		if p.HasGrad() {
			p.FillGrad()
		}
	}
}

// ofOtherModel reports whether the step was that of another model on the tape: this one is frozen, or its output was detached.
func (r *reducer) ofOtherModel() bool {
	return len(r.seen) == 0 && !r.allowUnused && !slices.ContainsFunc(r.params, (*tensor.Param).HasGrad)
}

// completeUnused handles parameters that got no gradient in the last Backward.
func (r *reducer) completeUnused() error {
	var unused []*tensor.Param
	for _, p := range r.params {
		switch {
		case r.seen[p]:
		case p.HasGrad(): // from an earlier microbatch
			r.countReady(p)
		case p.Frozen(): // since Attach
			r.exec.Fill(p.Grad, 0)
			r.countReady(p)
		default:
			unused = append(unused, p)
		}
	}
	if !r.allowUnused {
		if len(unused) > 0 {
			return unusedError(unused)
		}
		return nil
	}
	return r.agreeOnUnused(unused)
}

// agreeOnUnused gives the parameters that this rank did not use zeros as gradients if another rank used them. What no
// rank used is left without a gradient.
func (r *reducer) agreeOnUnused(unused []*tensor.Param) error {
	for _, p := range unused {
		r.exec.Fill(p.Grad, 0)
		r.countReady(p)
	}
	if r.used.IsZero() {
		r.used = tensor.NewStaging(memory.Communication, r.g.Device(), tensor.Uint8, len(r.params))
	}
	used := tensor.Data[uint8](r.used)
	for i, p := range r.params {
		used[i] = 0
		if p.HasGrad() {
			used[i] = 1
		}
	}
	if err := r.g.AllReduce(r.used, dist.Max).Wait(); err != nil {
		return err
	}
	for i, p := range r.params {
		if used[i] == 1 && !p.HasGrad() {
			p.FillGrad()
		}
	}
	return nil
}
