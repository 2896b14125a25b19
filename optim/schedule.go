package optim

import "math"

// Schedule returns the factor of the learning rate in a step; the first step is 0. It may be any function; nil is the constant 1.
type Schedule func(step int) float64

// Linear goes from one factor to another in the given number of steps, and then stays there (torch's LinearLR). A decay to zero is
// Linear(1, 0, steps).
func Linear(from, to float64, steps int) Schedule {
	positive("Linear", steps)
	return func(step int) float64 {
		return from + (to-from)*float64(min(step, steps))/float64(steps)
	}
}

// Cosine falls from 1 to the factor to, along half a cosine, in the given number of steps, and then stays there (Loshchilov and Hutter 2017
// without restarts; torch's CosineAnnealingLR up to T_max).
func Cosine(to float64, steps int) Schedule {
	positive("Cosine", steps)
	return func(step int) float64 {
		x := float64(min(step, steps)) / float64(steps)
		return to + float64((1-to)*(1+math.Cos(math.Pi*x))/2)
	}
}

// StepDecay multiplies by factor after every so many steps (torch's StepLR).
func StepDecay(every int, factor float64) Schedule {
	positive("StepDecay", every)
	return func(step int) float64 { return math.Pow(factor, float64(step/every)) }
}

// Warmup rises linearly, by 1/steps a step, and reaches 1 in the last of the given number of steps. After that, the schedule then starts
// from its step 0. nil is the constant 1.
func Warmup(steps int, then Schedule) Schedule {
	positive("Warmup", steps)
	return func(step int) float64 {
		switch {
		case step < steps:
			return float64(step+1) / float64(steps)
		case then == nil:
			return 1
		}
		return then(step - steps)
	}
}

// Stable is 1 in the given number of steps. After that, the schedule then starts from its step 0. Warm-up, stable, decay (WSD, Hu et al.
// 2024) is Warmup(100, Stable(800, Linear(1, 0, 100))): only the decay depends on where the training ends.
func Stable(steps int, then Schedule) Schedule {
	positive("Stable", steps)
	return func(step int) float64 {
		if step < steps || then == nil {
			return 1
		}
		return then(step - steps)
	}
}

func positive(name string, steps int) {
	if steps <= 0 {
		fail("%s needs at least one step, not %d", name, steps)
	}
}
