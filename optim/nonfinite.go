package optim

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// Nonfinite says what a Step does if the norm of all gradients is NaN or infinite, as it is if the loss of Backward is not finite. Such a
// step would destroy the parameters. With a Scaler, Nonfinite is not used.
type Nonfinite int

// Stop makes Step return a *NonfiniteError, and change nothing (error_if_nonfinite of torch.nn.utils.clip_grad_norm_). On a device with its
// own memory, Step does not wait to know: from that step on the device changes no parameter, and CheckNonfinite returns the error. If
// ranks hold parts of parameters and there is no Norm, each decides by its own part: the others change theirs until they hear of the error.
// Then give a Norm, or go on from a checkpoint.
const Stop Nonfinite = 0

// Skip makes Step leave out such a step, but not more than max of them one after another: the next one is an error. It does not count in
// the optimizer's Steps. To know this, Step waits for the gradients, also on a device with its own memory. Like Clip, it needs a Norm if
// ranks hold parts of parameters.
func Skip(max int) Nonfinite { return Nonfinite(max) }

func (n Nonfinite) check() {
	if n < 0 {
		fail("Nonfinite is Skip(%d), want Skip(1) or more, or Stop", n)
	}
}

// NonfiniteError is the error of a step whose norm of gradients is not finite. The step has changed nothing.
type NonfiniteError struct {
	Step    int     // of the optimizer, from 1
	Late    int     // steps since, which have changed nothing either
	Param   string  // the first parameter whose gradient is not finite; "": none that this rank counts
	Norm    float64 // NaN or infinite
	Skipped int     // steps that were skipped one after another, with this one; 0: it is an error
	About   string  // what the function of OnNonfinite has found out, such as the samples
}

// Error says what was not finite.
func (e *NonfiniteError) Error() string {
	text := fmt.Sprintf("optim: step %d: the norm of the gradients is %v", e.Step, e.Norm)
	if e.Param != "" {
		text += "; the first one that is not finite is that of " + e.Param
	}
	if e.About != "" {
		text += "; " + e.About
	}
	return text
}

// skipping is what an Optimizer knows of steps whose gradients are not finite.
type skipping struct {
	inRow, skipped int
	tell           func(e *NonfiniteError) // or nil
}

// OnNonfinite makes the optimizer call f before Step or CheckNonfinite returns a *NonfiniteError, and when a step is skipped. f may add to
// e. nil removes f.
func (o *Optimizer) OnNonfinite(f func(e *NonfiniteError)) { o.tell = f }

// SetNonfinite replaces Config.Nonfinite.
func (o *Optimizer) SetNonfinite(n Nonfinite) {
	n.check()
	o.conf.Nonfinite = n
	o.mustHoldAll()
}

// Stops reports whether a step that is not finite is an error: neither Skip nor a Scaler leaves it out.
func (o *Optimizer) Stops() bool { return o.conf.Nonfinite == Stop && o.conf.Scaler == nil }

// Skipped returns the number of steps that Skip has left out.
func (o *Optimizer) Skipped() int { return o.skipped }

// Alike reports whether the gradients of all of size ranks decide in each step whether it is done: whether the Norm sums over all of them,
// or each rank has all gradients, summed over these axes, which are those of all ranks.
func (o *Optimizer) Alike(size int, axes tensor.Axes) bool {
	if o.conf.Norm != nil || size == 1 {
		return size == 1 || o.conf.Norm.Size() == size
	}
	return axes != 0 && !slices.ContainsFunc(o.states, func(s *paramState) bool {
		return s.P.Local.Len() != s.P.GlobalLen() || s.P.Placement().Summed()&axes != axes
	})
}

// later reports whether a step that must not be done is noticed after it: the device itself leaves it out.
func (o *Optimizer) later() bool {
	return !o.exec.Device().Host() && o.Stops()
}

// checkNorm reports whether the norm of the step is finite. If not, and if the step is not to be skipped, it returns an error.
func (o *Optimizer) checkNorm() (ok bool, err error) {
	norm, _, bad := o.norms.Found()
	if norm-norm == 0 {
		o.inRow = 0
		return true, nil
	}
	e := &NonfiniteError{Step: o.steps + 1, Norm: norm, Param: bad}
	if o.inRow < int(o.conf.Nonfinite) {
		o.inRow++
		o.skipped++
		e.Skipped = o.inRow
	}
	return false, o.report(e)
}

// CheckNonfinite returns what Stopped does, and calls the function of OnNonfinite before, as Step does.
func (o *Optimizer) CheckNonfinite() error {
	if e := o.Stopped(); e != nil {
		return o.report(e)
	}
	return nil
}

// Stopped returns the error of the first step that a device with its own memory has left out, or nil. It waits for the device.
func (o *Optimizer) Stopped() *NonfiniteError {
	if !o.later() {
		return nil
	}
	norm, step, bad := o.norms.Found()
	if step == 0 {
		return nil
	}
	return &NonfiniteError{Step: step, Late: o.steps - step, Norm: norm, Param: bad}
}

// report returns e, unless the step is skipped.
func (o *Optimizer) report(e *NonfiniteError) error {
	if o.tell != nil {
		o.tell(e)
	}
	if e.Skipped > 0 {
		return nil
	}
	return e
}
