package optim

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// EMA keeps exponential moving averages of the parameters that an optimizer trains: torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn. Each Step moves them towards the new values, avg += (1−decay)·(value − avg); the first one copies these. Under
// fsdp each rank averages its shards, of 16-bit parameters the masters are averaged, and a step that a Scaler skips is none. Buffers,
// and what is frozen when the optimizer is made, have no averages.
//
// The averages are a part of the optimizer's State, under the parameter's name and ".ema": a checkpoint that holds the
// optimizer holds them.
//
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4})
//	avg := optim.NewEMA(opt, 0.999)
//	... train ...
//	err := avg.Use(func() error { return evaluate(model) })
type EMA struct {
	o     *Optimizer
	decay float64
	begun bool          // the averages are of something
	in    bool          // Use runs
	spare tensor.Tensor // bytes of the largest parameter that has no master
}

// NewEMA gives an optimizer averages, once, before a state is loaded and before steps are captured. If it has done steps
// already, they begin with the present values. A decay that is not in [0,1) panics with a *tensor.Failure.
func NewEMA(o *Optimizer, decay float64) *EMA {
	switch {
	case o == nil:
		fail("NewEMA: the optimizer is nil")
	case !(decay >= 0 && decay < 1):
		fail("NewEMA: a decay of %v is not in [0,1)", decay)
	case o.ema != nil:
		fail("NewEMA: the optimizer has averages already")
	}
	e := &EMA{o: o, decay: decay, begun: o.steps > 0}
	dev, most := o.exec.Device(), 0
	for i := range o.states {
		s := &o.states[i]
		s.average = tensor.NewFor(tensor.OptimizerState, s.p.Local.Device(), s.dtype, s.p.Local.Len())
		if e.begun {
			o.syncMaster(s)
			tensor.Copy(s.average, s.value())
		}
		if s.master.IsZero() {
			most = max(most, s.p.Local.Len()*s.dtype.Size())
		}
	}
	e.spare = tensor.NewFor(tensor.OptimizerState, dev, tensor.Uint8, most)
	o.ema = e
	return e
}

// Use runs fn while the parameters have their averages as values, such as an evaluation, or a save without the optimizer. Afterwards they
// have the bits of before, also if fn panics. All ranks call it. Inside, a Step, the optimizer's State, another Use, and what
// else would change parameters is refused or undone. Before the first step there are no averages: a *tensor.Failure.
func (e *EMA) Use(fn func() error) error {
	e.o.mustNotBeInUse("Use")
	if !e.begun {
		fail("EMA.Use before the first step: there are no averages")
	}
	e.exchange(true)
	defer e.exchange(false)
	return fn()
}

// exchange puts averages in the place of values, or values back in theirs.
func (e *EMA) exchange(in bool) {
	e.in = in
	var owners []tensor.Hooks
	for i := range e.o.states {
		s := &e.o.states[i]
		tensor.Raw(s.p.Local).Settle() // others may still read it
		switch {
		case s.master.IsZero():
			e.swap(s.p.Local, s.average)
		case in:
			e.o.syncMaster(s)
			e.o.cast(s.p.Local, s.average)
		default:
			e.o.cast(s.p.Local, s.master)
		}
		s.p.Changed()
		if h := s.p.Owner(); !slices.Contains(owners, h) {
			owners = append(owners, h)
		}
	}
	for _, h := range owners {
		if copies, ok := h.(interface{ Changed() }); ok { // fsdp's gathered ones
			copies.Changed()
		}
	}
}

// swap exchanges the bits of two tensors.
func (e *EMA) swap(a, b tensor.Tensor) {
	n := a.Len() * a.DType().Size()
	if n == 0 {
		return
	}
	dev := a.Device()
	q := dev.Queue(0)
	dev.Copy(e.spare.Ptr(), a.Ptr(), n, q)
	dev.Copy(a.Ptr(), b.Ptr(), n, q)
	dev.Copy(b.Ptr(), e.spare.Ptr(), n, q)
}

// update moves the averages: SGD's kernel does it, with the values as gradients, a weight decay of −1 and a negative rate.
func (e *EMA) update() {
	o := e.o
	for i := range o.states {
		o.syncMaster(&o.states[i])
	}
	rate := e.decay - 1
	if !e.begun {
		rate = -1 // from zeros: a copy
	}
	for i := 0; i < len(o.states); {
		d := o.states[i].dtype
		a := o.exec.Args(tensor.OpSGD, d)
		for ; i < len(o.states) && o.states[i].dtype == d; i++ {
			if s := &o.states[i]; s.p.Local.Len() > 0 {
				a.List = append(a.List, s.average.Ptr(), s.value().Ptr(), nil)
				a.ListLen = append(a.ListLen, s.p.Local.Len())
			}
		}
		if len(a.List) > 0 {
			a.F = [8]float64{rate, 0, 0, -1}
			o.exec.Launch()
		}
	}
	e.begun = true
}

// mustNotBeInUse panics where parameters have their averages as values.
func (o *Optimizer) mustNotBeInUse(what string) {
	if o.ema != nil && o.ema.in {
		fail("%s inside EMA.Use: the parameters have their averages as values", what)
	}
}
