package schedule

import (
	"cmp"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// Func returns the factor of the learning rate in a step; the first step is 0. It is an optim.Schedule.
type Func = func(step int) float64

// Linear goes from one factor to another in the given number of steps, and then stays there (torch's LinearLR). A decay to zero is
// Linear(1, 0, steps).
func Linear(from, to float64, steps int) Func {
	positive("Linear", steps)
	return func(step int) float64 {
		return from + (to-from)*float64(min(step, steps))/float64(steps)
	}
}

// Cosine falls from 1 to the factor to, along half a cosine, in the given number of steps, and then stays there (Loshchilov and Hutter 2017
// without restarts; torch's CosineAnnealingLR up to T_max).
func Cosine(to float64, steps int) Func {
	positive("Cosine", steps)
	return func(step int) float64 {
		x := float64(min(step, steps)) / float64(steps)
		return to + float64((1-to)*(1+math.Cos(math.Pi*x))/2)
	}
}

// StepDecay multiplies by factor after every so many steps (torch's StepLR).
func StepDecay(every int, factor float64) Func {
	positive("StepDecay", every)
	return func(step int) float64 { return math.Pow(factor, float64(step/every)) }
}

// Warmup rises linearly, by 1/steps a step, and reaches 1 in the last of the given number of steps. After that, the schedule then starts
// from its step 0. nil is the constant 1.
func Warmup(steps int, then Func) Func {
	positive("Warmup", steps)
	return first(steps, func(step int) float64 { return float64(step+1) / float64(steps) }, then)
}

// Stable is 1 in the given number of steps. After that, the schedule then starts from its step 0. Warm-up, stable, decay (WSD, Hu et al.
// 2024) is Warmup(100, Stable(800, Linear(1, 0, 100))): only the decay depends on where the training ends.
func Stable(steps int, then Func) Func {
	positive("Stable", steps)
	return first(steps, func(int) float64 { return 1 }, then)
}

// first is one schedule in the given number of steps, and then another, from its step 0 on; nil is the constant 1.
func first(steps int, one, then Func) Func {
	return func(step int) float64 {
		switch {
		case step < steps:
			return one(step)
		case then == nil:
			return 1
		}
		return then(step - steps)
	}
}

// Plateau lowers the learning rate when a value stops getting better (torch's ReduceLROnPlateau). It keeps nothing: all values so far
// decide, so a training that resumes goes on alike.
type Plateau struct {
	Factor    float64 // of one reduction; 0: 0.1
	Patience  int     // values in a row that may be no better; 0: 10
	Threshold float64 // how much better a value must be than the best one, as a part of that; 0: 1e-4
	Max       bool    // large values are good, such as those of an accuracy
}

// After returns the factor of the learning rate after these values, which all ranks must have alike, as those of train.Loop.Values:
//
//	opt.SetLR(lr * plateau.After(values))
func (p Plateau) After(values []float64) float64 {
	cut, patience, better := cmp.Or(p.Factor, 0.1), cmp.Or(p.Patience, 10), 1-cmp.Or(p.Threshold, 1e-4)
	if !(cut > 0 && cut < 1) || patience < 0 || !(better > 0 && better <= 1) {
		fail("%+v: want a Factor and a Threshold between 0 and 1, and no negative Patience", p)
	}
	factor, best, bad := 1., math.Inf(1), 0
	if p.Max {
		best, better = math.Inf(-1), 2-better
	}
	for _, v := range values {
		if bad++; p.Max && v > best*better || !p.Max && v < best*better {
			best, bad = v, 0
		}
		if bad > patience {
			factor, bad = factor*cut, 0
		}
	}
	return factor
}

func positive(name string, steps int) {
	if steps <= 0 {
		fail("%s needs at least one step, not %d", name, steps)
	}
}

func fail(format string, a ...any) {
	panic(&tensor.Failure{Op: "schedule", Err: fmt.Errorf(format, a...)})
}
