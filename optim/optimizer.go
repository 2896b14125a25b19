package optim

import (
	"cmp"
	"errors"
	"slices"

	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim/internal/gradnorm"
	"github.com/ringo-ml/ringo/optim/internal/master"
	"github.com/ringo-ml/ringo/tensor"
)

// Optimizer updates parameters from their gradients. It belongs to one goroutine.
type Optimizer struct {
	conf    AdamConfig // but for Betas and Eps, what all configurations have
	rule    rule
	exec    *tensor.Exec
	states  []*paramState // those of a group are neighbours
	frozen  nn.Params     // when the optimizer was made: they have no state
	steps   int
	spans   *trace.Recorder // of Trace, or nil
	rate    float64         // LR of this step
	grads   *grads.File     // of RINGO_GRADS; nil before the first step
	norms   *gradnorm.Norm
	scratch tensor.Tensor // a gradient, in the type of its parameter's moments
	ema     *EMA          // or nil
	skipping
	beside beside        // or nil
	took   []*paramState // in the last step
}

// paramState is one parameter with its state.
type paramState struct {
	master.Param
	rule    rule
	lrScale float64
	decay   float64
	group   int // index of its Group; if it has none, their number
	index   int // in the model
	moments [2]tensor.Tensor
	factors [2]*tensor.Param // whose shapes the moments have, on all ranks whole; nil: p's
	wide    tensor.Tensor    // part of scratch, if the gradient needs a cast
	steps   int
}

func newOptimizer(params nn.Params, r rule, b beside, c AdamConfig) *Optimizer {
	c.check()
	o := &Optimizer{conf: c, rule: r, beside: b, frozen: params.Frozen()}
	train, taken := params.Trainable(), map[string]bool{}
	at, ok := o.conf.Norm.(interface{ Device() tensor.Device })
	if len(train) == 0 && o.conf.Norm == nil || len(params) == 0 && !ok {
		fail("no trainable parameters, and no Norm to take part in (a stage of a pipeline that is frozen, or has none, has one: Norm: r.World)")
	}
	for _, p := range train {
		if taken[p.Name()] {
			fail("parameter %v is given twice, or two have its name", p)
		}
		taken[p.Name()] = true
		if p.Local.IsZero() {
			fail("parameter %v was never made: call nn.Init or Attach first", p)
		}
	}
	if len(params) > 0 {
		at = slices.Concat(train, params)[0].Local
	}
	o.exec = tensor.NewExec(at.Device())
	for _, p := range train {
		o.addParamState(p)
	}
	o.mustHoldAll()
	for _, p := range params {
		if !p.Frozen() || p.LossScale() == 0 { // a stage of a pipeline may have frozen ones alone, and scales losses
			o.tellScale(p)
		}
	}
	slices.SortStableFunc(o.states, func(a, b *paramState) int { return a.group - b.group })
	o.norms = gradnorm.New(o.exec, paramsOf(o.states))
	if b != nil && b.take(o) {
		b.begin(o)
	} else {
		o.beside = nil
	}
	return o
}

func (o *Optimizer) addParamState(p *tensor.Param) {
	s := &paramState{Param: master.New(p), rule: o.rule, lrScale: 1, decay: o.conf.WeightDecay}
	s.group, s.index = len(o.conf.Groups), len(o.states)
	if o.beside != nil {
		o.beside.choose(o, s)
	}
	i := -1
	p.AsWhole(func() { // a matrix, of which fsdp has a flat part
		i = slices.IndexFunc(o.conf.Groups, func(g Group) bool { return g.Match(p) })
	})
	if i >= 0 {
		g := o.conf.Groups[i]
		s.group, s.decay, s.lrScale = i, g.WeightDecay, s.lrScale*cmp.Or(g.LRScale, 1)
	}
	dev, n := p.Local.Device(), p.Local.Len()
	if first := o.exec.Device(); dev != first && !(dev.Host() && first.Host()) {
		fail("parameters on %v and %v; an optimizer has one device", first, dev)
	}
	for i := range s.rule.state() {
		size := n
		if f := s.factors[i]; f != nil {
			size = f.GlobalLen()
		}
		s.moments[i] = newState(dev, s.DType, size)
	}
	o.states = append(o.states, s)
}

// LR returns the learning rate of the next step, before a group's LRScale.
func (o *Optimizer) LR() float64 {
	if o.conf.Schedule == nil {
		return o.conf.LR
	}
	return o.conf.LR * o.conf.Schedule(o.steps)
}

// SetLR sets the learning rate that the schedule multiplies.
func (o *Optimizer) SetLR(lr float64) {
	notNegative("LR", lr)
	o.conf.LR = lr
}

// Steps returns the number of steps done.
func (o *Optimizer) Steps() int { return o.steps }

// GradNorm returns the norm of all gradients together in the last step, before clipping and without the loss's scale; 0 if there is neither
// Clip nor a Scaler. To get the norm without clipping, set Clip to math.Inf(1). On a device with its own memory it waits for the
// computation.
func (o *Optimizer) GradNorm() float64 {
	if !o.scales() {
		return 0
	}
	norm, _, _ := o.norms.Found()
	return norm
}

// Trace records the phase of each Step, and a span for each kernel, on r.
func (o *Optimizer) Trace(r *trace.Recorder) {
	o.spans = r
	o.exec.Trace(r)
}

// Step updates the parameters that have gradients, and consumes the gradients. Scaler and Nonfinite say which steps are skipped, and which
// are a *NonfiniteError. If Config.Norm or a probe returns an error, Step returns it and changes no parameter. An error of the Ranks of
// Muon or Adafactor may come when some parameters are updated: go on from a checkpoint. Ranks of fsdp compare their settings in the first
// Step: others on one of them are an error on all.
func (o *Optimizer) Step() error {
	o.spans.Phase("optimizer")
	defer o.spans.Phase("")
	o.mustNotBeInUse("Step")
	if err := o.checkStep(); err != nil {
		return err
	}
	ok, err := o.gradScale()
	if err != nil {
		return err
	}
	if ok {
		if err := o.apply(); err != nil {
			return err
		}
		o.countStep()
	}
	for _, s := range o.states {
		s.P.Consume()
		o.tellScale(s.P) // another optimizer may be newer
	}
	return nil
}

// checkStep checks that a Step can run, and writes the norms of gradients if RINGO_GRADS asks for them: complete, and before they are
// clipped.
func (o *Optimizer) checkStep() (err error) {
	o.checkFrozen()
	o.mustHaveGradients()
	for _, s := range o.states {
		s.check()
	}
	if o.grads == nil {
		if err := o.agree(); err != nil {
			return err
		}
		if o.grads, err = grads.Create(o.exec.Device(), o.steps, o.shares); err != nil {
			return err
		}
	}
	switch {
	case !o.grads.Wanted():
		return nil
	case o.exec.Recording() != nil:
		return errors.New("optim: RINGO_GRADS asks for the gradients of every step, and capture.New records one without reading them: " +
			"RINGO_DEBUG=1 runs each step")
	}
	return o.grads.Step(o.squares())
}

// countStep counts a step that is done, and consumes its gradients.
func (o *Optimizer) countStep() {
	o.took = o.took[:0]
	for _, s := range o.states {
		if s.ready() {
			o.took = append(o.took, s)
		}
	}
	o.count(o.took)
	if r := o.exec.Recording(); r != nil {
		took, ema := slices.Clone(o.took), o.ema
		r.Host(func() {
			if o.mustNotBeInUse("Step"); o.ema != ema {
				fail("NewEMA after the step was captured: replays would not average")
			}
			if k := slices.IndexFunc(took, (*paramState).Written); k >= 0 {
				fail("%v was written after the step was captured, and replays do not see it in 16 bits: capture the step anew", took[k].P)
			}
			o.count(took)
		})
	}
}

// count counts a step of these parameters.
func (o *Optimizer) count(took []*paramState) {
	o.steps++
	for _, s := range took {
		s.steps++
		s.Changed()
		s.P.Consume()
	}
}

// takeRate sets the learning rate of the step, which all ranks must have alike, as what is frozen. p is of the step.
func (o *Optimizer) takeRate(p *tensor.Param) {
	o.rate = o.LR()
	frozen := uint64(0)
	for i, s := range o.states {
		if s.P.Frozen() {
			frozen = frozen*1099511628211 + uint64(i) + 1 // FNV's prime
		}
	}
	p.Stepped(o.rate, frozen)
}

// apply updates the parameters.
func (o *Optimizer) apply() error {
	if len(o.states) == 0 {
		return nil
	}
	for _, s := range o.states {
		if s.ready() {
			s.Sync(o.exec)
		}
	}
	first := o.states[max(slices.IndexFunc(o.states, (*paramState).ready), 0)].P
	o.takeRate(first)
	if r := o.exec.Recording(); r != nil {
		r.Host(func() { o.takeRate(first) })
	}
	if o.beside != nil {
		if err := o.beside.step(o); err != nil {
			return err
		}
	}
	for i := 0; i < len(o.states); {
		i = o.update(i)
	}
	if o.ema != nil {
		o.ema.averages.Update()
	}
	return nil
}

// ready reports whether the parameter is updated in this step.
func (s *paramState) ready() bool { return s.P.HasGrad() }

// check panics if the parameter does not fit its state any more. It waits until no collective uses the parameter.
func (s *paramState) check() {
	p := s.P
	if !s.ready() {
		return
	}
	mustBeSummed(p)
	mustHaveOneScale(p)
	mustBeItsValue(p)
	v, g := p.Local, p.Grad
	if v.Len() != g.Len() || v.DType() != s.DType && s.Master.IsZero() || !v.Contiguous() || !g.Contiguous() {
		failStep(p, []tensor.Shape{v.Shape(), g.Shape()},
			"value and gradient must be contiguous, of one length, and of the type that the optimizer was made for")
	}
	tensor.Raw(v).Settle()
	tensor.Raw(g).Settle()
}

// update launches the kernel for parameter i and for all following ones with the same hyperparameters. It returns the index of the next
// one.
func (o *Optimizer) update(i int) int {
	s := o.states[i]
	if !s.ready() || s.rule != o.rule {
		return i + 1
	}
	d, g := s.P.Local.DType(), s.P.Grad
	if s.special() {
		d, g = s.DType, o.grad(s)
	}
	a := o.exec.Args(o.rule.op(), d)
	o.add(a, s, g)
	for i++; i < len(o.states) && !s.special(); i++ {
		x := o.states[i]
		if !x.ready() || x.rule != o.rule {
			continue
		}
		if x.group != s.group || x.P.Local.DType() != d || x.special() || x.steps != s.steps {
			break
		}
		o.add(a, x, x.P.Grad)
	}
	if len(a.List) > 0 {
		a.In(o.norms.Factor)
		o.set(a, s)
		if r := o.exec.Recording(); r != nil {
			r.Vary(func(a *tensor.Args) { o.set(a, s) })
		}
		o.exec.Launch()
	}
	if s.special() {
		s.WriteBack(o.exec)
	}
	return i
}

// special reports whether the parameter needs casts, so that its kernel runs for it alone.
func (s *paramState) special() bool { return s.P.Grad.DType() != s.P.Local.DType() }

func (o *Optimizer) add(a *tensor.Args, s *paramState, g tensor.Tensor) {
	n := g.Len()
	if n == 0 { // a rank's shard may be empty
		return
	}
	a.List = append(a.List, s.Value().Ptr(), g.Ptr())
	for k := range 1 + flag(a.Op == tensor.OpAdam) { // moments of the kernel
		if s.moments[k].IsZero() {
			a.List = append(a.List, nil)
		} else {
			a.List = append(a.List, s.moments[k].Ptr())
		}
	}
	if a.DType.IsHalf() {
		a.List = append(a.List, s.P.Local.Ptr())
	}
	a.ListLen = append(a.ListLen, n)
}

// set sets the kernel's attributes for the next step of a parameter.
func (o *Optimizer) set(a *tensor.Args, s *paramState) {
	o.rule.set(a, o.rate*s.lrScale, s.decay, s.steps+1)
}
