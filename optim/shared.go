package optim

import (
	"fmt"

	"github.com/ringo-ml/ringo/optim/internal/held"
	"github.com/ringo-ml/ringo/tensor"
)

// beside is a rule that looks at whole parameters, beside the rules of elements.
type beside interface {
	choose(o *Optimizer, s *paramState) // gives s its rule
	take(o *Optimizer) bool             // takes those with its rules, if there are any
	begin(o *Optimizer)                 // makes memory
	step(o *Optimizer) error            // collective over Ranks
}

// shared has what such rules have in common.
type shared struct {
	name, parts, why string // in errors
	ranks            TensorNorm
	states           []*paramState
	counted          []bool // which of states this rank gives to the sum over ranks; nil: not known yet
	tape             *tensor.Tape
	update           tensor.Tensor // memory for the update of this rank's part of a parameter
	whole            tensor.Tensor // memory for what ranks put together
	one              tensor.Tensor // 1, or NaN if the step is not to be done
}

// take panics if this rank has a part of a parameter and there are no Ranks.
func (b *shared) take(o *Optimizer) bool {
	most := 0
	for _, s := range o.states {
		if s.rule == o.rule || s.P.GlobalLen() == 0 {
			continue
		}
		if b.ranks == nil {
			mustHold(s.P, b.why+": give "+b.name+"Config.Ranks the group of all ranks that hold parts (Ranks: r.World)")
		}
		b.states = append(b.states, s)
		most = max(most, s.P.Local.Len())
		if s.DType != b.states[0].DType {
			fail("%s of %v and %v: %s needs one type", b.parts, b.states[0].DType, s.DType, b.name)
		}
	}
	if len(b.states) == 0 {
		return false
	}
	dev := o.exec.Device()
	b.tape = tensor.NewTape(dev, tensor.NoGrad())
	b.update = newState(dev, b.states[0].DType, most)
	b.one = newState(dev, tensor.Float64, 1)
	return true
}

// start begins a step.
func (b *shared) start(o *Optimizer) (err error) {
	if o.exec.Recording() != nil {
		return fmt.Errorf("optim: capture.New cannot record a step of %s: call Step outside it", b.name)
	}
	if b.ranks != nil && b.counted == nil {
		sum := held.Sum{Field: b.name + "Config.Ranks", Of: "sum of their parts", Alike: b.parts}
		if b.counted, err = held.Count(b.ranks, paramsOf(b.states), sum, o.settings()); err != nil {
			return err
		}
	}
	a := o.exec.Args(tensor.OpAffine, tensor.Float64).Out(b.one).In(o.norms.Factor.Range(0, 1))
	a.F[1] = 1
	o.exec.Launch()
	return nil
}

// direction returns the gradient of this rank's part of a parameter, clipped and without the loss's scale, or its momentum if there is one.
func (b *shared) direction(o *Optimizer, s *paramState, momentum tensor.Ptr) tensor.Tensor {
	u := b.update.Range(0, s.P.Local.Len())
	o.exec.Fill(u, 0)
	if u.Len() == 0 || !s.ready() {
		return u
	}
	s.rule.set(o.sgd(u, o.grad(s), momentum, o.norms.Factor), 0, 0, s.steps+1)
	o.exec.Launch()
	return u
}

// apply changes this rank's part of a parameter by the update u.
func (b *shared) apply(o *Optimizer, s *paramState, u tensor.Tensor) {
	if u.Len() == 0 || !s.ready() {
		return
	}
	o.sgd(s.Value(), u, nil, b.one).F = [8]float64{o.rate * s.lrScale, 0, 0, s.decay}
	o.exec.Launch()
	s.WriteBack(o.exec)
}

// sgd prepares a launch of SGD's kernel: x is updated by the gradient g, with momentum or nil, unless the factor of g is NaN.
func (o *Optimizer) sgd(x, g tensor.Tensor, momentum tensor.Ptr, factor tensor.Tensor) *tensor.Args {
	a := o.exec.Args(tensor.OpSGD, x.DType())
	a.List, a.ListLen = append(a.List, x.Ptr(), g.Ptr(), momentum), append(a.ListLen, x.Len())
	return a.In(factor)
}

// fromPart copies this rank's part of p to its places in all, the whole, and toPart copies them back.
func fromPart(p *tensor.Param, all, part tensor.Tensor) { each(p, all, part, tensor.Copy) }

func toPart(p *tensor.Param, all, part tensor.Tensor) {
	each(p, all, part, func(all, part tensor.Tensor) { tensor.Copy(part, all) })
}

// each calls f for the runs of elements that this rank has of p: in all, the whole, and in part, its part.
func each(p *tensor.Param, all, part tensor.Tensor, f func(all, part tensor.Tensor)) {
	lo, hi := p.Placement().Range()
	at := 0
	for global, n := range p.Runs(lo, hi) {
		f(all.Range(global, global+n), part.Range(at, at+n))
		at += n
	}
}
