package optim

import "github.com/ringo-ml/ringo/optim/internal/master"

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
	o        *Optimizer
	averages *master.Averages
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
	params := make([]*master.Param, len(o.states))
	for i, s := range o.states {
		params[i] = &s.Param
	}
	o.ema = &EMA{o, master.NewAverages(o.exec, params, decay, o.steps > 0)}
	return o.ema
}

// Use runs fn while the parameters have their averages as values: an evaluation, or a save without the optimizer. Afterwards they have
// their earlier bits, also if fn panics. All ranks call it. Inside fn, these are errors: a Step, the optimizer's State, another Use. Other
// changes of parameters are errors or undone. Before the first step there are no averages, and Use panics with a *tensor.Failure.
func (e *EMA) Use(fn func() error) error {
	e.o.mustNotBeInUse("Use")
	if !e.averages.Begun {
		fail("EMA.Use before the first step: there are no averages")
	}
	e.averages.Exchange(true)
	defer e.averages.Exchange(false)
	return fn()
}

// mustNotBeInUse panics while parameters have their averages as values.
func (o *Optimizer) mustNotBeInUse(what string) {
	if o.ema != nil && o.ema.averages.In {
		fail("%s inside EMA.Use: the parameters have their averages as values", what)
	}
}
