package optim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// setting is one thing that the ranks of a model must have alike.
type setting struct{ name, value string }

// settings returns what decides how parameters change in this step.
func (o *Optimizer) settings() []setting {
	scale, groups := 0.0, map[[2]float64]int{}
	if o.scaler != nil {
		scale = o.scaler.Scale
	}
	rules := describe(o.rule)
	if m, ok := o.beside.(*matrices); ok {
		rules += fmt.Sprintf(", Muon %+v", *m.rule)
	}
	for _, s := range o.states {
		groups[[2]float64{s.lrScale, s.decay}]++
	}
	return []setting{
		{"rule", rules},
		{"LR", fmt.Sprint(o.LR())}, {"Clip", fmt.Sprint(o.clip)}, {"Scaler", fmt.Sprint(scale)},
		{"Nonfinite", fmt.Sprint(o.nonfinite)},
		{"parameters by LRScale and WeightDecay", fmt.Sprint(groups)},
	}
}

func describe(r rule) string {
	return fmt.Sprintf("%v %s", r.op(), strings.TrimPrefix(fmt.Sprintf("%+v", r), "&"))
}

// RuleOf says how Step changes p, for people: ranks that have the same parameter must have the same text. It is empty if Step does not.
func (o *Optimizer) RuleOf(p *tensor.Param) string {
	if s := o.stateOf(p); s.p != nil {
		return fmt.Sprintf("%s, LR %v, WeightDecay %v, Clip %v", describe(s.rule), o.LR()*s.lrScale, s.decay, o.clip)
	}
	return ""
}

// RateOf returns the learning rate of p in the next step, with the schedule and the LRScale of its group; 0 if Step does not change p.
func (o *Optimizer) RateOf(p *tensor.Param) float64 { return o.LR() * o.stateOf(p).lrScale }

// stateOf returns that of p; none if Step does not change p.
func (o *Optimizer) stateOf(p *tensor.Param) *paramState {
	if k := slices.IndexFunc(o.states, func(s *paramState) bool { return s.p == p }); k >= 0 {
		return o.states[k]
	}
	return &paramState{}
}

// key is a hash of the value that float64 adds up exactly.
func (s setting) key() float64 { return float64(uint32(tensor.HashName(s.value))) }

// summer sums x over ranks, in place.
type summer interface{ SumFloats(x []float64) error }

// agree returns an error on all ranks of n, which have parts of the same parameters, unless their settings are the same. Each rank would
// change its part of the model in its own way, and nobody would notice. It is collective.
func (o *Optimizer) agree(n summer) error {
	list := o.settings()
	sums := []float64{1}
	for _, s := range list {
		sums = append(sums, s.key())
	}
	if err := n.SumFloats(sums); err != nil {
		return err
	}
	for i, s := range list {
		if sums[i+1] != sums[0]*s.key() {
			return fmt.Errorf("optim: ranks that share parameters have different optimizers: %s is %s here, but not on all of the %v ranks",
				s.name, s.value, sums[0])
		}
	}
	return nil
}

// agreeOnce calls agree in the first step for each owner of gradients that sums over the ranks with parts of a parameter (fsdp). Where
// ranks have whole parameters, their owner compares the values in the second step (ddp).
func (o *Optimizer) agreeOnce() error {
	if o.agreed {
		return nil
	}
	asked := map[tensor.Hooks]bool{}
	for _, s := range o.states {
		owner := s.p.Owner()
		if n, ok := owner.(summer); ok && !asked[owner] {
			asked[owner] = true
			if err := o.agree(n); err != nil {
				return err
			}
		}
	}
	o.agreed = true
	return nil
}
