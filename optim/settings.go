package optim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/optim/internal/held"
	"github.com/ringo-ml/ringo/tensor"
)

// settings returns what decides how parameters change in this step.
func (o *Optimizer) settings() []string {
	rules, groups := map[string]int{}, map[[2]float64]int{}
	for _, s := range o.states {
		rules[describe(s.rule)]++
		groups[[2]float64{s.lrScale, s.decay}]++
	}
	return []string{
		"rule is " + describe(o.rule), fmt.Sprint("number of parameters by rule is ", rules), fmt.Sprint("LR is ", o.LR()),
		fmt.Sprint("Clip is ", o.conf.Clip), fmt.Sprintf("Scaler is %+v", o.conf.Scaler), fmt.Sprint("Nonfinite is ", int(o.conf.Nonfinite)),
		fmt.Sprint("parameters by LRScale and WeightDecay is ", groups),
	}
}

func describe(r rule) string {
	return fmt.Sprintf("%v %s", r.op(), strings.TrimPrefix(fmt.Sprintf("%+v", r), "&"))
}

// RuleOf says how Step changes p, for people: ranks that have the same parameter must have the same text. It is empty if Step does not.
func (o *Optimizer) RuleOf(p *tensor.Param) string {
	if s := o.stateOf(p); s.P != nil {
		return fmt.Sprintf("%s, LR %v, WeightDecay %v, Clip %v", describe(s.rule), o.LR()*s.lrScale, s.decay, o.conf.Clip)
	}
	return ""
}

// RateOf returns the learning rate of p in the next step, with the schedule and the LRScale of its group; 0 if Step does not change p.
func (o *Optimizer) RateOf(p *tensor.Param) float64 { return o.LR() * o.stateOf(p).lrScale }

// stateOf returns that of p; none if Step does not change p.
func (o *Optimizer) stateOf(p *tensor.Param) *paramState {
	if k := slices.IndexFunc(o.states, func(s *paramState) bool { return s.P == p }); k >= 0 {
		return o.states[k]
	}
	return &paramState{}
}

// agree compares settings in the first step, for each owner of gradients that sums over the ranks with parts of a parameter (fsdp).
// Where ranks have whole parameters, their owner compares the values in the second step (ddp).
func (o *Optimizer) agree() error {
	asked := map[tensor.Hooks]bool{}
	for _, s := range o.states {
		owner := s.P.Owner()
		if n, ok := owner.(held.Summer); ok && !asked[owner] {
			asked[owner] = true
			if err := held.Compare(n, o.settings()); err != nil {
				return err
			}
		}
	}
	return nil
}
