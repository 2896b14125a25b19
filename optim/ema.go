package optim

import "github.com/ringo-ml/ringo/tensor"

// EMA keeps exponential moving averages of the parameters that an optimizer trains: torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn. Each Step moves them towards the new values, avg += (1−decay)·(value − avg); the first Step copies the values.
// Under fsdp, each rank averages its shards. For 16-bit parameters, the masters are averaged. A step that a Scaler skips does not change
// the averages. Buffers, and parameters that are frozen when the optimizer is made, have no averages.
//
// The averages are a part of the optimizer's State, named by the parameter's name and ".ema". So a checkpoint with the optimizer has them.
//
//	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-4})
//	avg := optim.NewEMA(opt, 0.999)
//	... train ...
//	err := avg.Use(func() error { return evaluate(model) })
type EMA struct {
	o     *Optimizer
	decay float64
	begun bool          // there are averages
	in    bool          // Use is running
	spare tensor.Tensor // as long as the largest parameter that has no master, in bytes
}

// NewEMA adds averages to an optimizer. Call it once, before a state is loaded and before steps are captured. If the optimizer has done
// steps already, the averages begin with the current values. A decay outside of [0,1) panics with a *tensor.Failure.
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
	for _, s := range o.states {
		s.average = newState(s.p.Local.Device(), s.dtype, s.p.Local.Len())
		if e.begun {
			o.syncMaster(s)
			tensor.Copy(s.average, s.value())
		}
		if s.master.IsZero() {
			most = max(most, s.p.Local.Len()*s.dtype.Size())
		}
	}
	e.spare = newState(dev, tensor.Uint8, most)
	o.ema = e
	return e
}

// Use runs fn while the parameters have their averages as values: an evaluation, or a save without the optimizer. Afterwards they have
// their earlier bits, also if fn panics. All ranks call it. Inside fn, these are errors: a Step, the optimizer's State, another Use. Other
// changes of parameters are errors or undone. Before the first step there are no averages, and Use panics with a *tensor.Failure.
func (e *EMA) Use(fn func() error) error {
	e.o.mustNotBeInUse("Use")
	if !e.begun {
		fail("EMA.Use before the first step: there are no averages")
	}
	e.exchange(true)
	defer e.exchange(false)
	return fn()
}

// exchange swaps averages and values: in puts the averages into the parameters, else they are taken out again.
func (e *EMA) exchange(in bool) {
	e.in = in
	for _, s := range e.o.states {
		tensor.Raw(s.p.Local).Settle() // a collective may still read it
		switch {
		case s.master.IsZero():
			e.swap(s.p.Local, s.average)
		case in:
			e.o.syncMaster(s)
			e.o.exec.Cast(s.p.Local, s.average)
		default:
			e.o.exec.Cast(s.p.Local, s.master)
		}
		s.p.Changed()
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

// update moves the averages with SGD's kernel: the values are the gradients, the weight decay is −1 and the rate is negative.
func (e *EMA) update() {
	o := e.o
	for _, s := range o.states {
		o.syncMaster(s)
	}
	rate := e.decay - 1
	if !e.begun {
		rate = -1 // copies, if the averages are zeros
	}
	for i := 0; i < len(o.states); {
		d := o.states[i].dtype
		a := o.exec.Args(tensor.OpSGD, d)
		for ; i < len(o.states) && o.states[i].dtype == d; i++ {
			if s := o.states[i]; s.p.Local.Len() > 0 {
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

// mustNotBeInUse panics while parameters have their averages as values.
func (o *Optimizer) mustNotBeInUse(what string) {
	if o.ema != nil && o.ema.in {
		fail("%s inside EMA.Use: the parameters have their averages as values", what)
	}
}
