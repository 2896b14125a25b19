package optim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// State is the state of an Optimizer, to resume a run. It does not hold the configuration. A schedule needs only Steps.
type State struct {
	Steps   int            // steps done
	LR      float64        // before the schedule
	Counts  map[string]int // steps done of each parameter, by name
	Scaler  *Scaler        // a copy; nil: there is none
	Tensors []StateTensor
	since   int // steps that were done when State returned it, plus 1; 0: its Tensors are others
}

// StateTensor is a tensor of a parameter's state, divided over ranks like Param.Local.
type StateTensor struct {
	Name   string        // the parameter's, a dot, and momentum_buffer, exp_avg, exp_avg_sq, row_var, col_var, variance, master or ema
	Param  *tensor.Param // the parameter; of row_var and col_var, one of their shape, which all ranks have whole
	Tensor tensor.Tensor
}

// State returns the current state. Its tensors are the optimizer's own: the next Step changes them.
func (o *Optimizer) State() State {
	o.mustNotBeInUse("State")
	st := State{Steps: o.steps, since: o.steps + 1, LR: o.conf.LR, Counts: make(map[string]int, len(o.states))}
	if o.conf.Scaler != nil {
		st.Scaler = new(*o.conf.Scaler)
	}
	for _, s := range o.states {
		s.Sync(o.exec)
		st.Counts[s.P.Name()] = s.steps
	}
	st.Tensors = o.tensors()
	return st
}

// tensors returns the tensors of a State.
func (o *Optimizer) tensors() (ts []StateTensor) {
	for _, s := range o.states {
		add := func(key string, of *tensor.Param, x tensor.Tensor) {
			ts = append(ts, StateTensor{s.P.Name() + "." + key, of, x})
		}
		for k, key := range s.rule.state() {
			add(key, cmp.Or(s.factors[k], s.P), s.moments[k])
		}
		if !s.Master.IsZero() {
			add("master", s.P, s.Master)
		}
		if o.ema != nil {
			add("ema", s.P, s.Average)
		}
	}
	return ts
}

// SetState copies a state into the optimizer and its Scaler. Tensors are found by name; their Param is not used. It returns an error and
// changes nothing if a name is missing or unknown, if a type or size differs, or if only one of state and optimizer has a Scaler.
func (o *Optimizer) SetState(st State) error {
	o.mustNotBeInUse("SetState")
	given, own, known := map[string]tensor.Tensor{}, o.tensors(), map[string]bool{}
	for _, x := range st.Tensors {
		given[x.Name] = x.Tensor
	}
	var errs []error
	wrong := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if (st.Scaler == nil) != (o.conf.Scaler == nil) {
		wrong("a Scaler in the state: %v, in the optimizer: %v", st.Scaler != nil, o.conf.Scaler != nil)
	}
	for _, s := range o.states {
		name := s.P.Name()
		known[name] = true
		if _, ok := st.Counts[name]; !ok {
			wrong("no step count for %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(st.Counts)) {
		if !known[name] {
			wrong("unknown parameter %s", name)
		}
	}
	clear(known)
	for _, x := range own {
		known[x.Name] = true
		from, ok := given[x.Name]
		switch {
		case !ok:
			wrong("no tensor %s", x.Name)
		case st.since > 0 && st.since <= o.steps && x.Tensor.Len() > 0 && from.Ptr() == x.Tensor.Ptr():
			wrong("%s is the optimizer's own memory, which the steps since State have changed: copy the tensors before these steps, or save and "+
				"load a checkpoint (package ckpt)", x.Name)
		case from.DType() != x.Tensor.DType() || from.Len() != x.Tensor.Len() || !from.Contiguous():
			wrong("%s is %v, not %v", x.Name, from.Shape(), x.Tensor.Shape())
		}
	}
	for _, x := range st.Tensors {
		if !known[x.Name] {
			wrong("unknown tensor %s", x.Name)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("optim: the state does not fit: %w", errors.Join(errs...))
	}
	for _, x := range own {
		tensor.Copy(x.Tensor, given[x.Name])
	}
	o.steps, o.conf.LR = st.Steps, st.LR
	o.norms.Forget()
	if o.ema != nil {
		o.ema.averages.Begun = st.Steps > 0
	}
	if o.conf.Scaler != nil {
		*o.conf.Scaler = *st.Scaler
	}
	for _, s := range o.states {
		s.steps = st.Counts[s.P.Name()]
		s.Leads()
	}
	return nil
}
