package optim

import (
	"cmp"
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// AdafactorConfig configures NewAdafactor. The zero value of a field is its default.
type AdafactorConfig struct {
	LR            float64    // largest relative step, and the factor of WeightDecay; 0: 1e-2
	Beta2Decay    float64    // step t has 1−β₂ = t^Beta2Decay; 0: −0.8
	Eps           [2]float64 // smallest root of the second moment, smallest norm of a parameter; 0: the type's epsilon, and 1e-3
	ClipThreshold float64    // largest root mean square of an update before its rate, 1 or more; 0: 1
	WeightDecay   float64    // 0: none
	// Ranks are all ranks that have parts or copies of the same parameters. They have the same ones. nil: each rank has all parameters whole.
	Ranks     TensorNorm
	Schedule  Schedule  // multiplies LR; nil: constant
	Groups    []Group   // a parameter uses the first one that matches
	Clip      float64   // largest norm of all gradients together; 0: not clipped
	Norm      Norm      // sums the norm over ranks; nil: this rank holds all gradients whole
	Scaler    *Scaler   // of the loss, for Float16; nil: the gradients are not scaled
	Nonfinite Nonfinite // what Step does if the loss or a gradient is not finite, unless there is a Scaler; zero: Stop
}

// adafactor is the rule of a parameter, or in an Optimizer, without moments, that of all.
type adafactor struct {
	beta2Decay, eps1, eps2, threshold float64
	moments                           []string
}

func (r *adafactor) op() tensor.Op   { return tensor.OpSGD }
func (r *adafactor) state() []string { return r.moments }

// set is for the direction of a gradient: SGD of a zero, with the rate −1, is the gradient.
func (r *adafactor) set(a *tensor.Args, _, _ float64, _ int) { a.F = [8]float64{-1} }

// factors has what an Optimizer needs for Adafactor.
type factors struct {
	shared
	rule    adafactor
	sums    tensor.Tensor      // of squares
	squares [][3]tensor.Tensor // the parts of sums, by state: of the gradient along rows and along columns, and of the parameter
	updates tensor.Tensor      // sum of the squares of each update
}

// NewAdafactor returns Adafactor (Shazeer and Stern 2018), torch.optim.Adafactor. For a parameter of two dimensions or more, it keeps the
// means of squares over the rows and over the columns of the last two, in place of two moments of each element: rows + columns numbers,
// which all ranks have whole. A step has memory for one update. Updates are relative to the size of a parameter. Ranks with parts of
// parameters add up their squares, twice a step.
func NewAdafactor(params nn.Params, c AdafactorConfig) *Optimizer {
	r := adafactor{cmp.Or(c.Beta2Decay, -0.8), c.Eps[0], cmp.Or(c.Eps[1], 1e-3), cmp.Or(c.ClipThreshold, 1), nil}
	if !(r.beta2Decay < 0) {
		fail("Beta2Decay is %v, want less than 0", c.Beta2Decay)
	}
	if !(r.threshold >= 1) {
		fail("ClipThreshold is %v, want 1 or more", c.ClipThreshold)
	}
	notNegative("Eps", min(c.Eps[0], c.Eps[1]))
	f := &factors{rule: r, shared: shared{name: "Adafactor", parts: "parameters", ranks: c.Ranks,
		why: "Adafactor needs means over rows, columns and all of it"}}
	return newOptimizer(params, &r, f, AdamConfig{LR: cmp.Or(c.LR, 1e-2), WeightDecay: c.WeightDecay, Schedule: c.Schedule, Groups: c.Groups,
		Clip: c.Clip, Norm: c.Norm, Scaler: c.Scaler, Nonfinite: c.Nonfinite})
}

// choose gives s its rule, and its moments their shapes, which are PyTorch's.
func (f *factors) choose(_ *Optimizer, s *paramState) {
	n, r := len(s.P.Global()), f.rule
	s.rule, r.moments = &r, []string{"variance"}
	if n < 2 {
		return
	}
	r.moments = []string{"row_var", "col_var"}
	for i := range s.factors {
		dims := append([]int{}, s.P.Global()...)
		dims[n-1-i] = 1
		s.factors[i] = tensor.NewParam(tensor.Constant(0), dims...)
		s.factors[i].SetName(s.P.Name())
	}
}

// begin makes the memory of sums.
func (f *factors) begin(o *Optimizer) {
	size, whole := 0, 0
	for _, s := range f.states {
		for _, n := range s.sums() {
			size += n
		}
		if s.isFactored() && s.P.Local.Len() < s.P.GlobalLen() {
			whole = max(whole, s.P.GlobalLen())
		}
	}
	dev, dtype, at := o.exec.Device(), f.states[0].DType, 0
	f.whole, f.sums, f.updates = newState(dev, dtype, whole), newState(dev, dtype, size), newState(dev, dtype, len(f.states))
	f.squares = make([][3]tensor.Tensor, len(f.states))
	for i, s := range f.states {
		for k, n := range s.sums() {
			f.squares[i][k] = f.sums.Range(at, at+n)
			at += n
		}
	}
}

// sums returns the numbers of sums over ranks: of rows, of columns, and of values.
func (s *paramState) sums() [3]int {
	if s.isFactored() {
		return [3]int{s.moments[0].Len(), s.moments[1].Len(), 1}
	}
	return [3]int{0, 0, 1}
}

// isFactored reports whether the moments are of rows and columns.
func (s *paramState) isFactored() bool { return s.factors[0] != nil }

// step does a step of all parameters. Sums over ranks are of squares and of the squares of updates.
func (f *factors) step(o *Optimizer) error {
	if err := f.start(o); err != nil {
		return err
	}
	some := func(do func(i int, s *paramState), is func(i int, s *paramState) bool) {
		for i, s := range f.states {
			if s.ready() && is(i, s) {
				do(i, s)
				f.tape.Reset()
			}
		}
	}
	sum := func(sums tensor.Tensor, do func(i int, s *paramState)) error {
		o.exec.Fill(sums, 0)
		some(do, func(i int, s *paramState) bool { return s.P.Local.Len() > 0 && (f.ranks == nil || f.counted[i]) })
		if f.ranks == nil {
			return nil
		}
		return f.ranks.SumTensor(sums)
	}
	if err := sum(f.sums, func(i int, s *paramState) { f.sumSquares(o, s, f.squares[i]) }); err != nil {
		return err
	}
	some(func(i int, s *paramState) { f.updateMoments(o, s, f.squares[i]) }, func(_ int, s *paramState) bool { return s.moments[0].Len() > 0 })
	if err := sum(f.updates, func(i int, s *paramState) {
		tensor.Copy(f.updates.Range(i, i+1), f.updateOf(o, s).Square().Sum().Reshape(1))
	}); err != nil {
		return err
	}
	some(func(i int, s *paramState) { f.apply(o, s, f.scaled(o, s, i)) }, func(_ int, s *paramState) bool { return s.P.Local.Len() > 0 })
	return nil
}

// gradient returns the gradient of a parameter for the step, with zeros where this rank has no part of it. That of a vector is this rank's
// part.
func (f *factors) gradient(o *Optimizer, s *paramState) tensor.Tensor {
	g := f.direction(o, s, nil)
	if !s.isFactored() {
		return f.tape.Input(g)
	}
	if g.Len() < s.P.GlobalLen() {
		all := f.whole.Range(0, s.P.GlobalLen())
		o.exec.Fill(all, 0)
		fromPart(s.P, all, g)
		g = all
	}
	n, m := g.Len()/s.moments[1].Len(), g.Len()/s.moments[0].Len()
	return f.tape.Input(g.View(g.Len()/(n*m), n, m))
}

// sumSquares writes this rank's part of the sums.
func (f *factors) sumSquares(o *Optimizer, s *paramState, q [3]tensor.Tensor) {
	v := s.Value()
	tensor.Copy(q[2], f.tape.Input(v.View(v.Len())).Square().Sum().Reshape(1))
	if s.isFactored() {
		g := f.gradient(o, s).Square()
		for k, sum := range q[:2] {
			tensor.Copy(sum, g.Sum(2-k).Reshape(sum.Len()))
		}
	}
}

// updateMoments moves the moments towards the means of squares. OpSGD changes nothing in a step that is not to be done.
func (f *factors) updateMoments(o *Optimizer, s *paramState, q [3]tensor.Tensor) {
	move := func(moment, to tensor.Tensor) {
		o.sgd(moment, f.tape.Input(moment).Sub(to), nil, f.one).F = [8]float64{math.Pow(float64(s.steps+1), f.rule.beta2Decay)}
		o.exec.Launch()
	}
	if !s.isFactored() {
		move(s.moments[0], f.gradient(o, s).Square())
		return
	}
	for k, sum := range q[:2] {
		move(s.moments[k], f.tape.Input(sum).Scale(float64(sum.Len())/float64(s.P.GlobalLen())))
	}
}

// epsilons are those of types, for AdafactorConfig.Eps.
var epsilons = map[tensor.DType]float64{tensor.Float32: 0x1p-23, tensor.Float64: 0x1p-52}

// updateOf returns the update of a parameter before it is clipped, as gradient returns the gradient.
func (f *factors) updateOf(o *Optimizer, s *paramState) tensor.Tensor {
	g, v, eps := f.gradient(o, s), f.tape.Input(s.moments[0]), cmp.Or(f.rule.eps1, epsilons[s.DType])
	if s.isFactored() {
		b, n, m := g.Dim(0), g.Dim(1), g.Dim(2)
		rows := v.Reshape(b, n, 1)
		v = rows.Div(ops.Clamp(rows.Mean(1).Reshape(b, 1, 1), eps, math.Inf(1))).Mul(f.tape.Input(s.moments[1]).Reshape(b, 1, m))
	}
	return g.Div(ops.Clamp(v, eps*eps, math.Inf(1)).Sqrt())
}

// scaled returns what apply multiplies by the rate: the update of this rank's part, clipped, times the size of the parameter.
func (f *factors) scaled(o *Optimizer, s *paramState, i int) tensor.Tensor {
	all := 1 / float64(s.P.GlobalLen())
	rms := func(sum tensor.Tensor) tensor.Tensor { return f.tape.Input(sum).Scale(all).Sqrt() }
	size := ops.Clamp(rms(f.squares[i][2]), f.rule.eps2, math.Inf(1))
	clip := ops.Clamp(rms(f.updates.Range(i, i+1)).Scale(1/f.rule.threshold), 1, math.Inf(1))
	relative := min(1, 1/(o.rate*s.lrScale*math.Sqrt(float64(s.steps+1))))
	u := f.updateOf(o, s).Mul(size.Div(clip).Scale(relative))
	part := f.update.Range(0, s.P.Local.Len())
	if part.Len() == u.Len() {
		tensor.Copy(part, u.Reshape(u.Len()))
		return part
	}
	whole := f.whole.Range(0, u.Len())
	tensor.Copy(whole, u.Reshape(u.Len()))
	toPart(s.P, whole, part)
	return part
}
